"""`anchorlab circuit RUN` and `anchorlab landscape RUN`."""

import json
import re

import pytest
import torch

import anchorlab.lens
from anchorlab.lens import AttentionRule, Circuit, CircuitPath, Explanation, landscape
from anchorlab.models import DecoderSpec
from anchorlab.runs import Store, metrics_frame
from anchorlab.tasks import TokenRetrieval, task
from anchorlab.theory import retrieval_circuit
from anchorlab.trained import zoo
from anchorlab.training import AdamW, Experiment, FixedSample, Members, Recipe
from tests.lens.landscape.hand_made import made as games
from tests.lens.landscape.hand_made import parallel, two_of_three

JOIN, ASK, BACK = (
    AttentionRule("key 1", "anchor 1"), AttentionRule("asked", "key 1"), AttentionRule("every position", 2),
)  # fmt: skip
MADE = Circuit(
    explanations={(0, 0): Explanation("nothing", (JOIN, BACK)), (0, 1): None, (1, 0): Explanation("uniform", (ASK,)),
                  (1, 1): Explanation("itself")},
    paths=(
        CircuitPath(0, 0, JOIN, attention=0.9375, cut_loss=0.75, mapped_cut_loss=0.5),
        CircuitPath(0, 0, BACK, attention=0.625, cut_loss=0.25, mapped_cut_loss=0.125),
        CircuitPath(1, 0, ASK, attention=1.0, cut_loss=3.5, mapped_cut_loss=3.25),
    ),
    roles=("anchor 1", "key 1", "asked"),
    threshold=0.0625,
    model_loss=0.5,
    loss=1.0,
    live_loss=0.125,
    empty_loss=2.5,
    rest_loss=2.0,
)  # fmt: skip


@pytest.fixture
def address(trained, small):
    return trained("anchor/identity", *small, "--recipe.checkpoints.every=2")


@pytest.fixture
def made(monkeypatch):
    """A circuit written by hand in place of a search; holds what the search was asked for."""
    asked = {}

    def search(model, one, **options):
        asked.update(options, model=model, task=one)
        return MADE

    monkeypatch.setattr(anchorlab.lens, "find_circuit", search)
    return asked


def test_prints_paths_losses_and_scores(anchorlab, address, made):
    said = anchorlab("circuit", address[:6], "--member", "0")
    assert (said.code, said.err, said.new_files) == (0, "", set())
    lines = [line.split() for line in said.out.splitlines()]
    assert ["0", "0", "key", "1", "anchor", "1", "0.9375", "0.75", "0.5"] in lines
    assert ["0", "0", "every", "position", "2", "before", "0.625", "0.25", "0.125"] in lines
    assert ["1", "0", "asked", "key", "1", "1", "3.5", "3.25"] in lines
    assert "anchor/identity: circuit of member 0 at step 4" in said.out
    assert "over 256 sequences of 'test'; threshold 0.0625" in said.out
    for words, loss in {"model as it is": 0.5, "by its maps": 1, "live": 0.125, "everywhere": 2.5, "paths": 2}.items():
        assert any(f"{words} " in line and line.split()[-1] == f"{loss:.4g}" for line in said.out.splitlines()), words
    # (2.5 - 1) / (2.5 - 0.5), (2 - 0.5) / (2.5 - 0.5), 0.25 / 0.125
    assert "faithfulness 0.75, completeness 0.75, minimality 2" in said.out
    assert "not explained and left unchanged: 0.1" in said.out


def test_json_has_every_number(anchorlab, address, made, workplace):
    options = ("--member=1", "--step=2", "--threshold=0.5", "--split=train", "--sequences=7", "--seed=3")
    told = json.loads(anchorlab("circuit", address[:6], *options, "--json").out)
    assert told["run"] == address and told["paths"][1] == {
        "layer": 0, "head": 0, "from": "every position", "to": 2,
        "attention": 0.625, "cut_loss": 0.25, "mapped_cut_loss": 0.125,
    }  # fmt: skip
    assert [one["explanation"] for one in told["heads"]] == [
        "key 1 → anchor 1; every position → 2 before; else nothing", None, "asked → key 1; else uniform", "itself"
    ]  # fmt: skip
    numbers = {"threshold": 0.0625, "model_loss": 0.5, "loss": 1, "live_loss": 0.125, "empty_loss": 2.5, "rest_loss": 2}
    assert numbers.items() <= told.items() and told["roles"] == ["anchor 1", "key 1", "asked"]
    assert (told["faithfulness"], told["completeness"], told["minimality"]) == (0.75, 0.75, 2)
    chosen = {"member": 1, "split": "train", "sequences": 7, "seed": 3}
    assert chosen.items() <= told.items() and told["step"] == 2
    assert {**chosen, "threshold": 0.5}.items() <= made.items() and made["task"] == task("anchor/identity")
    for name, weight in Store(workplace / "runs").find(address).read_checkpoint(2).items():
        assert torch.equal(made["model"].weights[name], weight), name


def test_draws_the_circuit(anchorlab, address, made, workplace):
    said = anchorlab("circuit", address[:6], "--member=0", "--figure", "found.svg")
    assert said.code == 0 and "figure: found.svg" in said.out
    drawn = (workplace / "found.svg").read_text()
    for text in (">layer 0<", ">layer 1<", ">0.75<", ">0.25<", ">3.50<", "member 0, step 4"):
        assert text in drawn, text


LOUDNESS = {2: (4.0, 4.5), 4: (5.0, 5.5)}


@pytest.fixture
def solved(workplace) -> str:
    """A run of two members that answer by two paths; by checkpoint and member their logits are larger.

    Scores of the second layer are softened: else it would find its keys by the traces that uniform attention leaves.
    """
    chains = TokenRetrieval(chains=3, steps=1, symbols=8, asked_steps=(1,))
    module = retrieval_circuit(chains)
    weights = {name: torch.stack([weight.detach()] * 2) for name, weight in module.named_parameters()}
    weights["blocks.1.attn.W_Q"] *= 0.2
    width, head_width = module.blocks[0].attn.W_Q.shape
    spec = DecoderSpec(layers=2, heads=1, width=width, head_width=head_width, layer_norm=False, feed_forward=False)
    recipe = Recipe(data=FixedSample(size=10), optimiser=AdamW(), batch=10, duration=4)
    cell = Experiment(chains, spec, recipe, Members(seeds=(0, 1))).cell
    with Store(workplace / "runs").open(cell) as run:
        for step, loudness in LOUDNESS.items():
            louder = weights["unembed.W_U"] * torch.tensor(loudness).view(2, 1, 1)
            run.write_checkpoint(step, {**weights, "unembed.W_U": louder})
        run.finish(metrics_frame([]), checkpoints=LOUDNESS)
    return cell.address


def view_in(page):
    text = page.read_text("utf-8")
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)[1])


@pytest.mark.slow
def test_the_page_shows_the_member_with_its_paths(anchorlab, solved, workplace):
    said = anchorlab("circuit", solved[:6], "--member=1", "--sequences=20", "--page", "found.html")
    assert said.code == 0 and "attention viewer: found.html" in said.out
    page = workplace / "found.html"
    view = view_in(page)
    assert view["members"] == ["seed 1"] and view["steps"] == [2, 4]
    told = [[path["text"].partition(" (loss ")[0] for path in paths] for paths in view["circuits"]]
    assert told == [["x1 of pair 1 → x0 of pair 1", "query x0 → x1 of pair 1"]]
    assert anchorlab("circuit", solved[:6], "--step=2", "--sequences=20", "--page", "found.html").code == 0
    view = view_in(page)
    assert (view["members"], view["steps"]) == (["seed 0"], [2])
    assert "circuit of member 0 at step 2" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (("--member", "2"), "member: 2 is outside 2 members; choose from 0..1"),
        (("--step", "3"), "no checkpoint of step 3; there are 0, 2, 4"),
        (("--split", "tset"), "split: unknown split 'tset'; did you mean 'test'?"),
        (("--threshold", "0.01"), "; raise it, or train longer"),
        (("--sequences", "0"), "sequences: cannot measure on 0; give 1 to 100000"),
        (("--page", "."), "page: . cannot be written; name a file in a folder that you can write to"),
        (("--page", "none/found.html"), "/none; make it first, or name another file"),
    ],
)
def test_a_bad_member_step_split_threshold_or_file_is_one_line(refused, address, asked, problem):
    assert problem in refused("circuit", address[:6], *asked)


def test_a_model_without_attention_says_so(refused, trained, small):
    address = trained("anchor/identity", "--model.kind=lstm", "--model.width=4", *small[4:])
    assert "no attention to explain" in refused("circuit", address[:6], "--member", "0")


ZOO = "zoo:anchor/identity"


@pytest.fixture
def asked(monkeypatch):
    """Has the landscape of two games in place of the measured one; the arguments that it is asked for."""
    given = {}

    def measure(model, units, replace, **options):
        given.update(options, units=units, replace=replace)
        return games(two_of_three, parallel)

    monkeypatch.setattr(anchorlab.lens, "landscape", measure)
    return given


def test_prints_the_circuits_of_each_member(anchorlab, asked):
    said = anchorlab("landscape", ZOO)
    assert (said.code, said.err, said.new_files) == (0, "", set())
    lines = [line.split() for line in said.out.splitlines()]
    assert ["0", "0", "1", "0.1", "3", "0.1", "1.0", "1.1", "1", "0.1"] in lines
    assert ["1", "0", "1", "0.1", "3", "1.2", "3"] in lines
    assert "32 subsets of 0.0 0.1 1.0 1.1 1.2, 256 sequences of 'test'" in said.out
    assert "by at most 10% of the effect" in said.out
    assert (asked["units"], asked["replace"], asked["seed"]) == ("heads", "mean", 0)


@pytest.mark.parametrize(
    ("words", "units"),
    [(("all",), "all"), (("roles",), "roles"), (("0.0", "1.mlp"), ["0.0", "1.mlp"]), (("0.0",), ["0.0"])],
)
def test_json_of_a_landscape_has_every_number(anchorlab, asked, words, units):
    options = ("--replace=zero", "--share=0.2", "--split=train", "--sequences=7", "--seed=3", "--json")
    told = json.loads(anchorlab("landscape", ZOO, "--units", *words, *options).out)
    assert {"units": units, "replace": "zero", "split": "train", "sequences": 7, "seed": 3}.items() <= asked.items()
    assert (told["share"], told["split"], told["step"]) == (0.2, "train", 600)
    first, second = told["members"]
    assert first["minimal_sets"] == [["0.1", "1.0", "1.1"], ["0.1", "1.0", "1.2"], ["0.1", "1.1", "1.2"]]
    assert first["necessary_sets"] == [["0.1"], ["1.0", "1.1"], ["1.0", "1.2"], ["1.1", "1.2"]]
    assert first["shapley"]["0.1"] == pytest.approx(0.5) and second["disjoint"] == 3
    assert first["best_loss"] == [1, 1, 1, 0, 0, 0] and sum(second["losses"]) == 32 - (16 + 4 + 3)


def test_draws_the_minimal_sets(anchorlab, asked, workplace):
    said = anchorlab("landscape", ZOO, "--figure", "sets.svg")
    assert said.code == 0 and "figure: sets.svg" in said.out
    drawn = (workplace / "sets.svg").read_text()
    for text in ("minimal sets at step 600", ">member 0: 3 sets<", ">1.2<"):
        assert text in drawn, text


def test_a_model_of_the_zoo(anchorlab):
    """As the library says."""
    told = json.loads(anchorlab("landscape", ZOO, "--sequences=20", "--json").out)
    found = landscape(zoo("anchor/identity"), sequences=20, progress=False)
    assert [one["losses"] for one in told["members"]] == found.loss.tolist()
    assert [one["smallest"] for one in told["members"]] == ["0.0 1.0"] * 3
