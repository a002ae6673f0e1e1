"""`anchorlab inspect RUN --page FILE.html`."""

import json

from anchorlab.runs import Store
from anchorlab.training import TrainedRun
from anchorlab.viewer import view_json, view_run


def test_writes_the_viewer_and_says_where(anchorlab, small, workplace):
    address = json.loads(anchorlab("train", "anchor/identity", *small, "--json").out)["run"]
    (workplace / "pages").mkdir()
    said = anchorlab("inspect", address[:6], "-n", "20", "--page", "pages/heads.html")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1] == "attention viewer: pages/heads.html"
    assert said.new_files == {str(workplace / "pages" / "heads.html")}
    page = (workplace / "pages" / "heads.html").read_text()
    assert view_json(view_run(TrainedRun(Store(workplace / "runs").find(address)))) in page


def test_json_stays_json_beside_a_page(anchorlab, small, workplace):
    address = json.loads(anchorlab("train", "anchor/identity", *small, "--json").out)["run"]
    heads = json.loads(anchorlab("inspect", address[:6], "-n", "20", "--page", "heads.html", "--json").out)
    assert {(row["layer"], row["head"]) for row in heads} == {(0, 0)}
    assert (workplace / "heads.html").exists()


def test_writes_no_page_for_a_model_without_attention(anchorlab, small, workplace):
    address = json.loads(
        anchorlab("train", "anchor/identity", "--model.kind=lstm", "--model.width=4", *small[4:], "--json").out
    )["run"]
    said = anchorlab("inspect", address[:6], "--page", "heads.html")
    assert said.code == 2 and "hook_pattern" in said.err
    assert not (workplace / "heads.html").exists()
