"""Parts: single seeds, trained anywhere, that are one result together."""

from dataclasses import replace
from itertools import pairwise

import polars as pl
import pytest
import torch

from anchorlab.engine import run
from anchorlab.errors import SpecError, StoreError
from anchorlab.findings import at_least, provenance
from anchorlab.models import DecoderSpec
from anchorlab.runs import Run, Store
from anchorlab.runs.assembled import AssembledRun
from anchorlab.studies import Profile, Reading, Study, run_study
from anchorlab.studies.members import run_with_parts
from anchorlab.studies.parts import keep_part, seeds_with_parts
from anchorlab.studies.profile_names import part_name
from anchorlab.studies.readings import of_first
from anchorlab.studies.study import metrics_alone
from anchorlab.tasks import task
from anchorlab.training import AdamW, Evaluation, Experiment, FixedSample, Members, Recipe, Stop, Times, TrainedRun
from tests.studies.made_up_claims import made_up

STEPS = 20
SEEDS = (1000, 1001, 1002)


def experiment(precision="float32", **members) -> Experiment:
    recipe = Recipe(
        data=FixedSample(size=40),
        optimiser=AdamW(learning_rate=3e-3),
        batch=20,
        duration=STEPS,
        precision=precision,
        evaluation=Evaluation(every=10, size=20),
        checkpoints=Times(every=10),
    )
    model = DecoderSpec(layers=1, heads=2, width=8, head_width=4)
    return Experiment(task("anchor/identity"), model, recipe, Members(seeds=SEEDS, **members), "identity")


def alone(whole: Experiment, member: int, store) -> TrainedRun:
    return run([whole.take(range(member, member + 1))], store, workers=1)[0]


@pytest.mark.parametrize("execution", ["member", "mapped"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_seeds_of_two_stores_are_what_training_them_together_gives(tmp_path, execution, precision, tolerance):
    """Losses of 5.3 are rounded to 9e-16 in float64 and to 5e-7 in float32, and twenty steps made no larger difference;
    the tolerances leave room for other processors, and seeds differ by more than 0.01."""
    whole = experiment(precision, learning_rate=(3e-3, 2e-3, 1e-3))
    (together,) = run([whole], tmp_path / "together", workers=1, execution=execution)
    for member, place in enumerate(("here", "there", "here")):
        alone(whole, member, tmp_path / place)
    (found,) = run_with_parts([whole], Store(tmp_path / "here"), [Store(tmp_path / "there")])
    assert isinstance(found.run, AssembledRun) and found.run.finished
    assert found.run.address == together.run.address and found.experiment == whole
    keys = ["member", "seed", "step", "split", "group", "edit", "metric"]
    assert found.metrics.select(keys).rows() == together.metrics.select(keys).rows()
    losses = [one.metrics.filter(metric="loss")["value"] for one in (found, together)]
    assert (losses[0] - losses[1]).abs().max() < tolerance
    ends = together.metric("loss").filter(step=STEPS)["value"]
    assert min(abs(first - second) for first, second in pairwise(ends)) > 0.01
    assert found.checkpoints == together.checkpoints
    for name, value in found.ensemble(10).weights.items():
        assert torch.allclose(value, together.ensemble(10).weights[name], atol=tolerance)
    assert [one["members"] for one in found.run.made_by] == [[0], [1], [2]]
    assert not (tmp_path / "here" / whole.cell.address).exists()


def test_members_that_stopped_early_keep_their_last_weights(tmp_path):
    whole = experiment("float64", learning_rate=(3e-2, 1e-3, 1e-3))
    (free,) = run([whole], tmp_path / "free", workers=1)
    losses = sorted(free.metric("loss", split="train").filter(step=10)["value"])
    stop = Stop(metric="loss", split="train", direction="below", value=(losses[0] + losses[1]) / 2)
    whole = replace(whole, recipe=whole.recipe.replace(stop=stop))
    (together,) = run([whole], tmp_path / "together", workers=1)
    for member in range(3):
        alone(whole, member, tmp_path / "apart")
    (found,) = run_with_parts([whole], Store(tmp_path / "apart"), [])
    assert isinstance(found.run, AssembledRun)
    assert [part.checkpoints() for part in found.run.parts] == [[0, 10], [0, 10, 20], [0, 10, 20]]
    assert found.checkpoints == together.checkpoints == [0, 10, 20]
    for step in found.checkpoints:
        for name, value in found.ensemble(step).weights.items():
            assert torch.allclose(value, together.ensemble(step).weights[name], atol=1e-12), (step, name)
    for step in (15, 30):
        with pytest.raises(StoreError, match=f"no checkpoint of step {step}"):
            found.ensemble(step)


def test_only_the_members_that_no_store_has_are_trained(tmp_path):
    whole = experiment()
    alone(whole, 1, tmp_path)
    before = {one.address for one in Store(tmp_path).runs()}
    run_with_parts([whole], Store(tmp_path), (), workers=1)
    added = {one.address for one in Store(tmp_path).runs()} - before
    assert added == {whole.take(range(at, at + 1)).cell.address for at in (0, 2)}
    again = run_with_parts([whole], Store(tmp_path), (), workers=1)
    assert {one.address for one in Store(tmp_path).runs()} == before | added and again[0].run.finished


def test_without_parts_members_trained_alone_are_not_looked_for(tmp_path):
    whole = experiment()
    alone(whole, 0, tmp_path)
    (found,) = run([whole], tmp_path, workers=1)
    assert not isinstance(found.run, AssembledRun) and (tmp_path / whole.cell.address).is_dir()


def test_another_setting_is_no_part(tmp_path):
    whole = experiment()
    other = replace(whole, recipe=whole.recipe.replace(optimiser=AdamW(learning_rate=1e-3)))
    alone(other, 0, tmp_path)
    (found,) = run_with_parts([whole], Store(tmp_path), (), workers=1)
    assert not isinstance(found.run, AssembledRun)


norm = made_up("norm", at_least(0.0), lambda seen: seen.norms, at="nowhere")
falls = made_up("falls", at_least(0.0), lambda seen: seen.falls, at="nowhere")


def norms(run):
    return run.reading("norms", lambda one: one.ensemble().weights["embed.W_E"].flatten(1).norm(dim=1))


def fall(run):
    loss = run.metric("loss", split="train").pivot(on="step", index="member", values="value")
    return torch.tensor((loss["0"] - loss[str(STEPS)]).to_list())


class Seen(Reading):
    norms, falls = of_first(norms), of_first(fall)


def own_study(keeps=metrics_alone, **choices) -> Study:
    setting = experiment()
    profiles = {"paper": Profile(setting.members, "The setting.", paper=True)}
    return Study(
        "own/norms",
        "Norms.",
        claims=(norm, falls),
        trains=lambda members: {"": replace(setting, members=members)},
        reads=Seen,
        profiles=profiles,
        paper="a paper",
        keeps=keeps,
        **choices,
    )


def test_claims_are_judged_on_parts_without_weights(tmp_path):
    """The values are those of the runs with weights; the parts keep metrics, readings and where they were trained."""
    study, parts = own_study(keeps=lambda run, setting: norms(run)), tmp_path / "parts"
    whole = run_study(study, "paper", tmp_path / "whole", workers=1, progress=False)
    for seed in SEEDS[:2]:
        (one,) = run(study.experiments_of(part_name("paper", [seed])), tmp_path / str(seed), workers=1)
        kept = keep_part(study, "paper", one, parts)
        assert sorted(path.name for path in kept.iterdir()) == [
            "manifest.json", "metrics.parquet", "readings.safetensors", "spec.json",
        ]  # fmt: skip
    assert Store(parts).problems() == []
    assert seeds_with_parts(study, "paper", [Store(parts)]) == SEEDS[:2]
    # a second experiment trains the first seed alone, and has no part
    alike = experiment()
    more = replace(alike, recipe=alike.recipe.replace(batch=10), members=Members(seeds=SEEDS[:1]))
    both = replace(study, trains=lambda members: {"alike": replace(alike, members=members), "more": more})
    assert seeds_with_parts(both, "paper", [Store(parts)]) == SEEDS[1:2]
    found = run_study(study, "paper:1000:1002", tmp_path / "here", progress=False, parts=[Store(parts)])
    assert [one.units for one in found.claims] == [one.units[:2] for one in whole.claims]
    assert [one.scope for one in found.claims] == ["paper", "paper"]
    assert found.claims[0].untrained.value != pytest.approx(found.claims[0].value)
    table = found.tables[-1]
    assert table.title == "Where each part was trained"
    assert [row[:2] for row in table.rows] == [("identity", 1000), ("identity", 1001)]
    assert all(row[4][:2] == "20" and "float32, torch" in row[5] for row in table.rows)
    assert found.provenance.hardware == table.rows[0][2]


def test_a_part_has_no_host_and_no_weights(tmp_path):
    (one,) = run([experiment().take(range(1))], tmp_path / "runs", workers=1)
    kept = TrainedRun(Run(keep_part(own_study(), "paper", one, tmp_path / "parts")))
    assert kept.metrics.equals(one.metrics) and kept.checkpoints == []
    assert all("host" not in made and made["date"] and made["arithmetic"] for made in kept.run.made_by)
    assert provenance("paper", [kept], 0.0).hardware == kept.run.made_by[0]["device"]  # not that of this machine
    with pytest.raises(StoreError, match="kept without weights; train it in another store to look inside"):
        kept.ensemble()
    with pytest.raises(StoreError, match="kept without weights; train it in another store to look inside"):
        kept.save_pretrained(tmp_path / "one")


def test_a_part_is_a_single_seed_of_a_study_with_readings(tmp_path):
    study = own_study(keeps=None)
    (one,) = run(study.experiments_of(part_name("paper", SEEDS[:1])), tmp_path / "runs", workers=1)
    with pytest.raises(SpecError, match=r"^study: own/norms has no parts; let it say what its claims read of weights"):
        keep_part(study, "paper", one, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
    (three,) = run([experiment()], tmp_path / "runs", workers=1)
    with pytest.raises(SpecError, match=r"^run: has 3 members; make a part of a single seed$"):
        keep_part(own_study(), "paper", three, tmp_path / "parts")


def test_readings_of_a_changed_file_are_refused(tmp_path):
    study = own_study(keeps=lambda run, setting: norms(run))
    (one,) = run([experiment().take(range(1))], tmp_path / "runs", workers=1)
    path = keep_part(study, "paper", one, tmp_path / "parts") / "readings.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"readings\.safetensors"):
        norms(TrainedRun(Run(path.parent)))
    assert [problem for problem in Store(tmp_path / "parts").problems() if "readings.safetensors" in problem]


def test_controls_measure_their_own_weights_not_the_kept_readings(tmp_path):
    """The untrained value of a claim that needs trained members comes from the initial weights of these."""

    def of_fitted(run):
        fitted = run.metric("loss", split="train").filter(step=STEPS)["value"].to_numpy() < 5.28
        return norms(run)[torch.tensor(fitted)]

    class Judged(Seen):
        norms = of_first(of_fitted)

    study = replace(own_study(keeps=lambda run, setting: norms(run)), reads=Judged)
    for seed in SEEDS[:2]:
        (one,) = run(study.experiments_of(part_name("paper", [seed])), tmp_path / str(seed), workers=1)
        keep_part(study, "paper", one, tmp_path / "parts")
    losses = one.metric("loss", split="train").filter(pl.col("step").is_in([0, STEPS]))["value"].to_list()
    assert losses[0] > 5.28 > losses[1], losses
    found = run_study(study, "paper:1000:1002", tmp_path / "here", progress=False, parts=[Store(tmp_path / "parts")])
    untrained = [each.untrained() for each in study.experiments_of("paper:1000:1002")]
    initial = norms(run(untrained, tmp_path / "untrained", workers=1)[0])
    assert found.claims[0].untrained.value == pytest.approx(float(initial.mean()))
    assert found.claims[0].untrained.value != pytest.approx(found.claims[0].value, rel=1e-5)
