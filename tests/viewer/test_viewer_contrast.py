"""Every text of the viewer stands out from its background: a contrast of at least 4.5 to 1 (WCAG AA)."""

from dataclasses import replace

import pytest
import torch

from anchorlab.viewer import ViewPath
from tests.lens.hand_built import identity_solver, stacked
from tests.viewer.viewer_scripts import SOLVED, live_view

WORST = """() => {
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
  return [...document.querySelectorAll('.attention-view *')]
    .filter((one) => worded(one) && one.checkVisibility())
    .map((one) => {
      const [text, behind] = [light(mixed(getComputedStyle(one).color, ground(one))), light(ground(one))];
      const contrast = (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05);
      return [contrast, one.className, one.textContent];
    })
    .sort(([one], [other]) => one - other)[0];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(read, findings, scheme):
    labels = ((("shift 1", "uniform", "-", "self", "position 0", "matching"),),)
    examples = torch.tensor([[4, 5, 3, 6, 7, 8, 9, 10, 11]])
    live = live_view([stacked(identity_solver())], SOLVED, examples)
    circuits = ((ViewPath(1, 0, "asked → key", (((8, 3),),)),),)
    view = replace(live, labels=labels, recorded_only="It is too large.", circuits=circuits)
    page = read(replace(findings, figures=(), views=(view,)), scheme=scheme).page
    assert_legible(page)
    page.locator(".typed input").fill("7 8 3 9 10 11 4 5 6")
    page.get_by_role("radio", name="switched off").check()
    assert_legible(page)
    page.locator(".typed input").fill("what")
    assert_legible(page)


def assert_legible(page):
    worst = page.evaluate(WORST)
    assert worst[0] >= 4.5, worst
