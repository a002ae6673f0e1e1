"""The release workflow publishes from a tag alone, and the repository's address is written in where it is known."""

import re
import runpy
import tomllib

import pytest
import yaml

from tests.documents import README, ROOT

ADDRESS = "https://github.com/owner/name"
PROJECT = ROOT / "pyproject.toml"


@pytest.fixture
def address():
    return runpy.run_path(str(ROOT / ".github" / "address.py"))


def test_urls_are_written_in_once(address):
    urls = {
        "Repository": ADDRESS, "Documentation": "https://example.org/", "Issues": f"{ADDRESS}/issues",
        "Changelog": f"{ADDRESS}/blob/main/CHANGELOG.md",
    }  # fmt: skip
    before = tomllib.loads(PROJECT.read_text("utf-8"))
    for docs in (urls["Documentation"], ""):
        text = address["with_urls"](PROJECT.read_text("utf-8"), ADDRESS, docs)
        after = tomllib.loads(text)
        assert after["project"].pop("urls") == {
            name: url for name, url in urls.items() if docs or name != "Documentation"
        }
        assert after == before
        assert address["with_urls"](text, ADDRESS, docs) == text


def test_badges_stand_below_the_title_and_links_are_complete(address):
    readme = "# A title\n\nText. ![A](docs/a.png) [B](docs/b.md#c) [C](https://example.org) [D](#d)\n"
    text = address["with_badges"](readme, ADDRESS)
    assert text.splitlines()[:3] == [
        "# A title",
        "",
        f"[![CI]({ADDRESS}/actions/workflows/ci.yml/badge.svg?branch=main)]({ADDRESS}/actions/workflows/ci.yml)",
    ]
    assert text.splitlines()[-1] == (
        f"Text. ![A]({ADDRESS}/raw/main/docs/a.png) [B]({ADDRESS}/blob/main/docs/b.md#c) [C](https://example.org) "
        "[D](#d)"
    )
    assert address["with_badges"](text, ADDRESS) == text


def test_the_readme_keeps_no_link_that_needs_the_repository(address):
    links = re.findall(r"\]\(([^)]*)\)", address["with_badges"](README.read_text("utf-8"), ADDRESS))
    assert len(links) > 10 and all(link.startswith("https://") for link in links)


@pytest.mark.parametrize("repository", ["", "owner/name"])
def test_nothing_changes_where_the_repository_is_unknown(address, monkeypatch, tmp_path, repository):
    for file in (PROJECT, README):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setitem(address["main"].__globals__, "ROOT", tmp_path)
    monkeypatch.setenv("ANCHORLAB_REPOSITORY", repository)
    monkeypatch.delenv("ANCHORLAB_DOCS", raising=False)
    address["main"]()
    for file in (PROJECT, README):
        assert ((tmp_path / file.name).read_bytes() == file.read_bytes()) == (not repository)


def test_only_a_tag_publishes_and_only_after_the_build_was_tested():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # `on` is true in YAML 1.1
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert "make release" in [step.get("run") for step in build["steps"]]
    assert publish["needs"] == "build" and publish["permissions"] == {"id-token": "write"}
    assert workflow["permissions"] == {"contents": "read"} and "permissions" not in build
