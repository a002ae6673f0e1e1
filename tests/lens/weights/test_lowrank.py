"""Truncations of a run's matrices, against singular values by numpy and a plain forward pass."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from anchorlab.engine import run
from anchorlab.errors import SpecError, StoreError
from anchorlab.lens import best_truncations, matrices, truncations
from anchorlab.models import RecallSpec
from anchorlab.rng import child_seed
from anchorlab.runs import Store
from anchorlab.tasks import NoisyRecall
from anchorlab.training import SGD, Evaluation, Experiment, Members, Recipe, Stream
from tests.small_experiments import smoothed

TASK = NoisyRecall(source="uniform", tokens=5, length=8)
FRACTIONS = (0.0, 0.3, 0.5)
PRODUCT = "blocks.0.attn.W_V @ blocks.0.attn.W_O"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    recipe = Recipe(
        data=Stream(), optimiser=SGD(learning_rate=0.05), batch=8, duration=4, evaluation=Evaluation(every=4, size=10),
        precision="float64",
    )  # fmt: skip
    experiment = Experiment(TASK, RecallSpec(width=10, hidden=14, factored_values=True), recipe, Members(seeds=(3, 4)))
    return run([experiment], Store(tmp_path_factory.mktemp("lowrank")), workers=1)[0]


def cut(matrix, rank):
    left, values, right = np.linalg.svd(matrix.numpy())
    return torch.from_numpy((left[:, :rank] * values[:rank]) @ right[:rank])


def test_each_number_is_that_of_the_cut_model(trained):
    table = truncations(trained, ["blocks.1.mlp.W_in", PRODUCT], FRACTIONS, split="clean", size=50)
    assert table["fraction"].unique().sort().to_list() == [0.0, 0.3, 0.5, 1.0]
    ensemble = trained.ensemble()
    for member, seed in enumerate((3, 4)):
        batch = TASK.sample("clean", 50, child_seed(seed, "eval", "clean"))
        for fraction, rank in ((0.0, 0), (0.3, 3), (0.5, 5), (1.0, 10)):
            for name in ("blocks.1.mlp.W_in", PRODUCT):
                weights = dict(ensemble.member_weights(member))
                if name == PRODUCT:
                    value, output = "blocks.0.attn.W_V", "blocks.0.attn.W_O"
                    weights[value] = cut(weights[value] @ weights[output], rank)
                    weights[output] = torch.eye(10, dtype=torch.float64)
                else:
                    weights[name] = cut(weights[name], rank)
                logits = torch.func.functional_call(ensemble.template, weights, (batch.inputs, batch.positions))
                right = torch.softmax(logits, -1).gather(-1, batch.answers.unsqueeze(-1)).mean()
                found = table.filter(weight=name, fraction=fraction, member=member, metric="right", group="all")
                assert found["value"].to_list() == pytest.approx([float(right)], abs=1e-9)
                assert (found["rank"].item(), found["seed"].item()) == (rank, seed)


def test_the_best_cut_is_the_lowest_loss_or_the_highest_of_anything_else():
    rows = [
        ("A", 0.0, 0, 5.0, 0.1), ("A", 0.5, 2, 1.0, 0.9), ("A", 1.0, 4, 2.0, 0.8),
        ("B", 0.0, 0, 0.5, 0.2), ("B", 0.5, 2, 0.5, 0.1), ("B", 1.0, 4, 2.0, 0.8),
    ]  # fmt: skip
    table = pl.DataFrame(
        [
            {"weight": w, "fraction": f, "rank": r, "member": m, "seed": m, "group": "all", "metric": k, "value": v + s}
            for w, f, r, loss, right in rows
            for k, v in (("loss", loss), ("right", right))
            for m, s in ((0, -0.05), (1, 0.05))
        ]
    )
    lowest, highest = best_truncations(table), best_truncations(table, "right")
    assert lowest.select("weight", "rank").rows() == [("B", 0), ("A", 2)]  # of equal losses the smaller rank
    assert lowest["change"].to_list() == pytest.approx([-1.5, -1.0])
    assert highest.select("weight", "rank").rows() == [("A", 2), ("B", 4)]
    assert best_truncations(table.with_columns(pl.col("metric").replace("loss", "error")), "error").equals(lowest)
    with pytest.raises(SpecError, match="unknown metric 'rihgt'; did you mean 'right'"):
        best_truncations(table, "rihgt")


def test_a_loss_of_ones_own_is_measured_and_its_lowest_value_is_the_best(trained, tmp_path):
    one = trained.experiment
    own = replace(one, recipe=one.recipe.replace(loss=smoothed(share=0.3)))
    (found,) = run([own], Store(tmp_path / "runs"), workers=1)
    name, expected = "blocks.1.mlp.W_in", dict[float, list[float]]()
    for fraction in (0.0, 1.0):
        for member, seed in enumerate((3, 4)):
            batch, weights = TASK.sample("clean", 20, child_seed(seed, "eval", "clean")), found.ensemble()
            weights = {
                key: value * (fraction if key == name else 1) for key, value in weights.member_weights(member).items()
            }
            logits = torch.func.functional_call(one.template, weights, (batch.inputs, batch.positions))
            logs = torch.log_softmax(logits, -1)
            each = 0.7 * logs.gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1) + 0.3 * logs.mean(-1)
            expected.setdefault(fraction, []).append(-float(each.mean()))
    table = truncations(found, [name], (0.0,), split="clean", size=20, keep=tmp_path / "kept")
    for fraction, values in expected.items():
        rows = table.filter(fraction=fraction, metric="objective", group="all").sort("member")
        assert rows["value"].to_list() == pytest.approx(values, abs=1e-9)
    lowest = min(sum(values) / 2 for values in expected.values())
    assert best_truncations(table, "objective")["value"].to_list() == pytest.approx([lowest], abs=1e-9)


def test_a_stopped_search_goes_on(trained, tmp_path, monkeypatch):
    def stop(done, total):
        if done == 3 * 2:
            raise KeyboardInterrupt

    asked = (["blocks.*.mlp.W_*"], FRACTIONS)
    whole = truncations(trained, *asked, size=20)
    with pytest.raises(KeyboardInterrupt):
        truncations(trained, *asked, size=20, keep=tmp_path, progress=stop)
    assert len(list(tmp_path.iterdir())) == 2
    measured = []
    from anchorlab.lens.weights import lowrank

    cuts = lowrank._cuts
    monkeypatch.setattr(
        lowrank, "_cuts", lambda run, ensemble, name, *rest: measured.append(name) or cuts(run, ensemble, name, *rest)
    )
    assert truncations(trained, *asked, size=20, keep=tmp_path).equals(whole)
    assert measured == ["blocks.1.mlp.W_in", "blocks.1.mlp.W_out"]
    kept = next(iter(tmp_path.iterdir()))
    kept.write_bytes(kept.read_bytes().replace(b"loss", b"lass", 1))
    with pytest.raises(StoreError, match="truncated or altered"):
        truncations(trained, *asked, size=20, keep=tmp_path)


def test_matrices_by_name_pattern_and_product(trained):
    ensemble = trained.ensemble()
    assert matrices(ensemble, ["blocks.0.attn.W_?", "blocks.0.attn.W_O", " blocks.0.attn.W_V@blocks.0.attn.W_O"]) == [
        "blocks.0.attn.W_V",
        "blocks.0.attn.W_O",
        PRODUCT,
    ]
    assert "blocks.0.mlp.b_in" not in matrices(ensemble)
    for weights, problem in (
        (["blocks.0.atn.*"], "weights.0: unknown matrix"),
        (["blocks.1.mlp.W_out @ blocks.1.mlp.W_out"], "not a product of two"),
    ):
        with pytest.raises(SpecError, match=problem):
            truncations(trained, weights)
    for fractions in ((), (1.0,), (0.5, 1.5), (-0.1,)):
        with pytest.raises(SpecError, match="not fractions of the rank"):
            truncations(trained, ["**"], fractions)
    with pytest.raises(SpecError, match="unknown split"):
        truncations(trained, split="tests")
