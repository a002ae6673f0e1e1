"""Fixtures for tests in a headless browser; every test that uses them has the marker `browser`."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from anchorlab.findings import Findings

CHROMIUM_ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def pytest_itemcollected(item: pytest.Item) -> None:
    if "browser" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def findings() -> "Findings":
    from tests.report.hand_made_findings import make_findings

    return make_findings()


def until(holds: Callable[[], object], seconds: float = 30) -> None:
    """Wait for a condition that is asked from outside: what waits in the page evaluates text, which pages forbid."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    named = os.environ.get("CHROMIUM")
    program = named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("needs Chromium: make browser, or name it in $CHROMIUM")
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=CHROMIUM_ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open the page in a file; at the end, check that it requested nothing else and complained about nothing."""
    visited: list[tuple[Path, Any, list[str], list[str]]] = []

    def open_page(path: Path, width: int = 1280, scheme: str = "light") -> Any:
        # Without reduced motion the page scrolls smoothly, so that positions change between two measurements.
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
        )
        page, requests, complaints = context.new_page(), [], []
        visited.append((path, page, requests, complaints))
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield open_page
    for path, page, requests, complaints in visited:
        page.context.close()
        assert (requests, complaints) == ([path.as_uri()], [])


@pytest.fixture
def read(visit: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Open the page of findings."""
    from anchorlab.report import write_report

    return lambda findings, **window: visit(write_report(findings, tmp_path / "report.html"), **window)


CONTRASTS = """(within) => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const mixed = (colour, below) => {
    canvas.fillStyle = below;
    canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue] = canvas.getImageData(0, 0, 1, 1).data;
    return `rgb(${red} ${green} ${blue})`;
  };
  const light = (colour) => {
    const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const [red, green, blue] = colour.match(/\\d+/g).map((part) => linear(part / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const own = (at) => getComputedStyle(at).backgroundColor;
  const ground = (at) => (at ? mixed(own(at), ground(at.parentElement)) : 'rgb(255 255 255)');
  const worded = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  return [...document.querySelectorAll(`${within} *`)]
    .filter((one) => worded(one) && one.checkVisibility())
    .map((one) => {
      const [text, behind] = [light(mixed(getComputedStyle(one).color, ground(one))), light(ground(one))];
      const contrast = (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05);
      return [contrast, one.className, one.textContent];
    })
    .sort(([one], [other]) => one - other);
}"""


def contrasts(page: Any, within: str) -> list[Any]:
    """The contrast of every text that is seen below an element, with its class and its words; the lowest first."""
    return page.evaluate(CONTRASTS, within)
