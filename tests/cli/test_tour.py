"""`anchorlab tour`, and the zoo on the command line."""

import json
import time

import pytest
import torch

import anchorlab as al
from tests.documents import README, all_blocks
from tests.trained.test_zoo import nothing_is_written  # noqa: F401 - of the zoo's folder, as root too


@pytest.fixture
def toured(anchorlab):
    began = time.process_time()
    said = anchorlab("tour")
    assert (said.code, time.process_time() - began < 15) == (0, True)
    return said


def test_the_tour_is_one_screen_and_writes_its_page_into_the_store(toured, workplace):
    lines = toured.out.splitlines()
    page = workplace / "runs" / "tour.html"
    assert len(lines) <= 40 and max(len(line) for line in lines if str(page) not in line) <= 80
    assert toured.new_files == {str(page.parent), str(page)}
    assert "anchor/identity" in page.read_text() and "https://" not in page.read_text()
    assert f"attention viewer: {page}" in lines
    assert [line.split()[0] for line in lines[-5:]] == ["anchorlab"] * 5


def test_what_it_shows_is_what_the_model_does(anchorlab, workplace):
    said = anchorlab("tour", "--page", "mine.html", "--json")
    found = json.loads(said.out)
    assert said.new_files == {str(workplace / "mine.html")} and found["page"] == str(workplace / "mine.html")
    tokens, model = [int(token) for token in found["tokens"]], al.zoo("anchor/identity").model(seed=found["seed"])
    assert found["answer"] == found["predicted"] == found["tokens"][found["tokens"].index("3") + 1]
    chances = model(torch.tensor([tokens]))[0, -1].softmax(dim=-1)
    assert float(chances[int(found["answer"])].detach()) == pytest.approx(found["probability"], abs=1e-5)
    first, second = (layer[0] for layer in found["attention"])
    assert all(abs(sum(row) - 1) < 1e-4 for row in (*first, *second))
    assert [(one["layer"], one["head"], one["does"]) for one in found["heads"]] == [
        (0, 0, "shift 1"),
        (1, 0, "broadcast from anchor+1"),
    ]
    assert found["accuracy"] == 1 and all(one["accuracy_without"] < 0.5 for one in found["heads"])


def test_the_readme_shows_the_tour(toured):
    (shown,) = (text for language, text in all_blocks(README) if language == "text")
    printed = {" ".join(line.split()) for line in toured.out.splitlines()}
    assert {" ".join(line.split()) for line in shown.splitlines()} <= printed


def test_commands_take_a_run_of_the_zoo_by_name(anchorlab, workplace):
    heads = json.loads(anchorlab("inspect", "zoo:anchor/identity", "-n", "50", "--json").out)
    best = max((one for one in heads if one["detector"] == "shift" and one["layer"] == 0), key=lambda one: one["value"])
    assert best["offset"] == 1
    circuit = json.loads(anchorlab("circuit", "zoo:anchor/identity", "--sequences", "32", "--json").out)
    assert {path["layer"] for path in circuit["paths"]} == {0, 1} and circuit["run"]
    listed = json.loads(anchorlab("runs", "--store", "zoo", "--json").out)
    assert {one["label"] for one in listed} == set(al.zoo()["name"])
    shown = json.loads(anchorlab("runs", "show", circuit["run"][:8], "--store", "zoo", "--json").out)
    assert shown["label"] == "anchor/identity" and shown["spec"]["members"]["seeds"] == [1000, 1001, 1002]
    assert anchorlab("runs", "check", "--store", "zoo").code == 0
    assert list(workplace.iterdir()) == []


def test_a_folder_of_ones_own_called_zoo_is_a_store_where_something_is_written(anchorlab, small, workplace):
    assert anchorlab("train", "anchor/identity", *small, "--store", "zoo").code == 0
    assert len(json.loads(anchorlab("runs", "--store", "./zoo", "--json").out)) == 1
    assert len(json.loads(anchorlab("runs", "--store", "zoo", "--json").out)) == len(al.zoo())
