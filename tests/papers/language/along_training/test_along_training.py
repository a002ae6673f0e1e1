"""The study of language models along training: on checkpoints trained here, and its claims on curves made by hand."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

import transformers
from huggingface_hub.errors import LocalEntryNotFoundError

from anchorlab.errors import SpecError
from anchorlab.language.prompts import facts, indirect_objects
from anchorlab.papers.language.along_training import along_training, checkpoints
from anchorlab.papers.language.along_training.along_training import Seen
from anchorlab.papers.language.along_training.checkpoints import HERE, Checkpoint, Setting
from anchorlab.papers.language.along_training.curves import Curves, at_shared_steps
from anchorlab.papers.language.along_training.measuring import Measuring
from anchorlab.papers.language.along_training.trained_here import Training, generated_sentences, train_checkpoints
from anchorlab.runs import Store
from anchorlab.studies import ObservationContext, Profile, run_study, study
from tests.papers.hand_made_runs import values_of, verdicts_of

STEPS = (0, 1, 2, 4)
FEW = Measuring(4, 4, 2, 16, 4, 2, facts_cut=(0.5, 0.0))
SETTING = Setting("lab/tiny", None, STEPS, FEW)
SMALL = Training(sentences=300, vocabulary=600, layers=2, width=32, batch=8)


def checkpoints_of(setting: Setting, context: ObservationContext) -> tuple[Checkpoint, ...]:
    """Measure the checkpoints of the one training."""
    (found,) = checkpoints.measure_trainings(setting, context)
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Checkpoints of a GPT-NeoX that was trained for four steps."""
    folder = tmp_path_factory.mktemp("trained")
    train_checkpoints(folder, 0, STEPS, SMALL)
    return folder


@pytest.fixture
def hub(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub with these checkpoints as revisions of one repository."""
    repository = tmp_path / "hub" / "models--lab--tiny"
    (repository / "refs").mkdir(parents=True)
    for place, step in enumerate(STEPS):
        commit = str(place) * 40
        shutil.copytree(trained / f"step{step}", repository / "snapshots" / commit)
        (repository / "refs" / f"step{step}").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return repository


def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **named: Any) -> None:
        raise AssertionError("opened a socket")

    monkeypatch.setattr("socket.socket.connect", refuse)


@pytest.mark.slow
def test_the_numbers_of_each_checkpoint_are_those_of_its_model(hub, trained, tmp_path, monkeypatch):
    """The probability of "the" after facts, by Hugging Face alone; with the first layer's W_in removed, too."""
    without_network(monkeypatch)
    found = checkpoints_of(SETTING, ObservationContext(tmp_path / "work"))
    assert [one.step for one in found] == list(STEPS) and not any(one.faults for one in found)
    for one in found:
        model = transformers.GPTNeoXForCausalLM.from_pretrained(trained / f"step{one.step}", dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(trained / f"step{one.step}")
        prompts = [prompt.text for prompt in facts()[: FEW.facts]]
        for name in ("facts: the", "facts, cut: the"):
            if "cut" in name:
                model.gpt_neox.layers[0].mlp.dense_h_to_4h.weight.data.zero_()
            expected = the_after(model, tokenizer, prompts)
            assert one.numbers[name] == pytest.approx(expected, rel=1e-4), (one.step, name)
    losses = [one.numbers["loss on English"] for one in found]
    assert losses[-1] < losses[0]


def the_after(model: Any, tokenizer: Any, prompts: Sequence[str]) -> float:
    (token, *_) = tokenizer(" the")["input_ids"]
    total = 0.0
    for prompt in prompts:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([tokenizer(prompt)["input_ids"]])).logits[0, -1]
        total += float(logits.softmax(-1)[token])
    return total / len(prompts)


@pytest.mark.slow
def test_a_step_with_the_weights_of_another_is_named_and_not_measured(hub, tmp_path):
    commits = {step: (hub / "refs" / f"step{step}").read_text() for step in (0, 2)}
    for file in (hub / "snapshots" / commits[0]).glob("*.safetensors"):
        shutil.copy(file, hub / "snapshots" / commits[2] / file.name)
    found = checkpoints_of(SETTING, ObservationContext(tmp_path / "work"))
    assert [one.numbers is None for one in found] == [False, False, True, False]
    analysis = along_training.STUDY.analysis(along_training.observed((found,), SETTING), SETTING)
    table = analysis.tables[0]
    assert table.rows == ((2, "has the weights of step 0", "no"),) and "1 of 4 checkpoints" in table.caption
    assert analysis.seen.trainings[0].steps == (0, 1, 4)
    assert analysis.figures[0].lines[0].x == (1, 4)


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_with_the_same_bytes(hub, tmp_path, monkeypatch):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    expected = checkpoints_of(SETTING, ObservationContext(whole))

    def stop(status: Any) -> None:
        if status.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints_of(SETTING, ObservationContext(stopped, stop))
    assert sorted(path.name for path in stopped.iterdir()) == ["step0.json", "step1.json"]
    measured = []
    real = checkpoints.measure
    monkeypatch.setattr(checkpoints, "measure", lambda model, few: measured.append(model.name) or real(model, few))
    assert checkpoints_of(SETTING, ObservationContext(stopped)) == expected
    assert measured == ["lab/tiny at step 2", "lab/tiny at step 4"]
    for path in whole.iterdir():
        assert (stopped / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("change", ["cut", "list", "without faults", "linked"])
def test_a_kept_file_that_is_not_as_it_was_written_is_measured_anew(hub, tmp_path, change):
    work, path = ObservationContext(tmp_path / "work"), tmp_path / "work" / "step0.json"
    setting = Setting("lab/tiny", None, (0,), FEW)
    expected, content = checkpoints_of(setting, work), path.read_bytes()
    if change == "linked":
        path.rename(tmp_path / "elsewhere.json")
        path.symlink_to(tmp_path / "elsewhere.json")
    else:
        kept = json.loads(content)
        del kept["faults"]
        path.write_bytes({"cut": content[:-9], "list": b"[]", "without faults": json.dumps(kept).encode()}[change])
    assert checkpoints_of(setting, work) == expected
    assert path.read_bytes() == content and not path.is_symlink()


def test_another_setting_is_measured_anew(hub, tmp_path):
    work = ObservationContext(tmp_path / "work")
    few = checkpoints_of(Setting("lab/tiny", None, (0,), FEW), work)
    more = checkpoints_of(Setting("lab/tiny", None, (0,), Measuring(4, 8, 2, 16, 4, 2)), work)
    assert few[0].numbers["facts: the"] != more[0].numbers["facts: the"]


@pytest.mark.slow
def test_one_downloaded_checkpoint_at_a_time_is_on_the_disk(trained, tmp_path, monkeypatch):
    seen = []

    def download(name: str, revision: str, local_files_only: bool = False, **named: Any) -> str:
        if local_files_only:
            raise LocalEntryNotFoundError("not here")
        seen.append(sorted(path.name for path in tmp_path.rglob("*.safetensors")))
        shutil.copytree(trained / revision, named["local_dir"], dirs_exist_ok=True)
        return str(named["local_dir"])

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    found = checkpoints_of(SETTING, ObservationContext(tmp_path / "work", download=True))
    assert all(one.numbers for one in found)
    assert seen == [[]] * len(STEPS)
    assert list(tmp_path.rglob("*.safetensors")) == []


@pytest.mark.slow
def test_a_checkpoint_that_does_not_open_is_named(hub, tmp_path):
    """Without a matrix; the first one is an error, as all others would hardly open either."""
    for step in (4, 0):
        path = hub / "snapshots" / (hub / "refs" / f"step{step}").read_text() / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "t5"}))
        if step:
            last = checkpoints_of(SETTING, ObservationContext(tmp_path / "work"))[-1]
            assert last.numbers is None and "cannot be opened: unknown architecture 't5'" in last.faults[0].text
    with pytest.raises(SpecError, match="unknown architecture 't5'"):
        checkpoints_of(SETTING, ObservationContext(tmp_path / "other"))


def test_without_a_download_or_with_one_revision_one_line_says_what_to_do(tmp_path, monkeypatch):
    without_network(monkeypatch)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(
        SpecError, match="model: EleutherAI/pythia-160m at step0 is not on this machine; allow --download"
    ):
        run_study(study("language/along-training"), "scaled", Store(tmp_path / "runs"))
    with pytest.raises(SpecError, match="revision: the study goes through all of them; leave it out"):
        checkpoints_of(Setting("lab/tiny", "step1", STEPS, FEW), ObservationContext(tmp_path))


@pytest.mark.slow
def test_findings_of_a_folder_of_checkpoints(trained, tmp_path):
    """From the folder to the findings: what training has not changed is measured as untrained."""
    made = along_training.STUDY
    local = Profile(Setting(str(trained), None, STEPS, FEW), "")
    own = replace(made, name="own/along-training", profiles={"quick": local}, smoke=None)
    findings = run_study(own, "quick", Store(tmp_path))
    assert findings.provenance.model == f"{trained}, 63872 parameters, 4 checkpoints"
    values = {one.claim.id.rpartition("/")[2]: one for one in findings.claims}
    assert values["previous-token-first"].verdict == "not measured"  # no head induces after four steps
    assert all(one.untrained is not None for one in findings.claims)
    assert len(findings.figures) == 5 and len(findings.tables[1].rows) == 4


# Curves made by hand, of a training as the paper describes it.

ANY_TOKEN = 2e-5  # the probability of each word before training
HAND_MADE_STEPS = (0, 1, 8, 16, 512, 1000, 2000, 4000, 14_000)
AS_IN_THE_PAPER = {
    "rank after prepositions": (20_000, 9000, 40, 2, 1, 1, 1, 1, 1),
    "rank after sentences": (20_000, 9000, 40, 9, 3, 1, 1, 1, 1),
    "objects: the": (0, 0, 0.05, 0.2, 0.3, 0.25, 0.2, 0.2, 0.2),
    "objects: right": (0, 0, 0, 0, 0.02, 0.1, 0.24, 0.4, 0.46),
    "objects: subject": (0, 0, 0, 0, 0.01, 0.08, 0.05, 0.05, 0.04),
    "objects, cut: the": (0, 0, 0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05),
    "objects, cut: right": (0, 0, 0, 0, 0, 0.1, 0.2, 0.5, 0.6), "facts: the": (0, 0, 0.1, 0.3, 0.4, 0.4, 0.4, 0.4, 0.5),
    "facts: right": (0, 0, 0, 0, 0, 0.01, 0.03, 0.05, 0.08), "facts, cut: the": (0, 0, 0, 0, 0.1, 0.1, 0.1, 0.1, 0.03),
    "facts, cut: right": (0, 0, 0, 0, 0, 0.01, 0.1, 0.2, 0.3), "heads that shift by one": (0, 0, 0, 0, 1, 3, 3, 3, 3),
    "heads that induce": (0, 0, 0, 0, 0, 2, 2, 2, 2),
}  # fmt: skip


def hand_made() -> Seen:
    def at_least(row: Sequence[float], least: float) -> tuple[float, ...]:
        return tuple(max(float(one), least) for one in row)

    rows = {name: at_least(row, 0.0 if "heads" in name else ANY_TOKEN) for name, row in AS_IN_THE_PAPER.items()}
    return Seen((Curves(HAND_MADE_STEPS, rows),))


def test_values_on_curves_as_in_the_paper():
    seen = hand_made()
    assert values_of(along_training.STUDY, seen) == pytest.approx(
        {
            "the-after-prepositions": 16, "the-after-sentences": 16, "the-before-objects": 2000 / 16,
            "object-as-subject": 0.02, "object-preferred": 2000, "objects-ratio": (0.6 / 0.05) / (0.46 / 0.2),
            "the-before-facts": 4000 / 16, "facts-ratio": (0.3 / 0.03) / (0.08 / 0.5),
            "previous-token-first": 1000 / 512,
        }
    )  # fmt: skip
    assert set(verdicts_of(along_training.STUDY, seen).values()) == {"agrees at small scale"}


def test_what_training_does_not_change_or_was_not_measured_supports_no_claim():
    untrained = hand_made().untrained()
    assert untrained is not None
    verdicts = verdicts_of(along_training.STUDY, untrained)
    agreeing = {name for name, verdict in verdicts.items() if verdict == "agrees at small scale"}
    assert agreeing == {"object-as-subject"}  # which holds before training, too
    (whole,) = hand_made().trainings
    early = Curves(HAND_MADE_STEPS[:3], {name: row[:3] for name, row in whole.numbers.items()})
    steps = ("the-after-prepositions", "object-preferred")
    values = values_of(along_training.STUDY, Seen((early,)))
    assert [values[name] for name in (*steps, "previous-token-first")] == [None] * 3
    # a training that never gets there comes after all others; a ratio has no value where one training has none
    values = values_of(along_training.STUDY, Seen((whole, early)))
    assert all(values[name] > HAND_MADE_STEPS[-1] for name in steps) and values["previous-token-first"] is None
    values = values_of(along_training.STUDY, Seen((whole, early, whole)))
    assert [values[name] for name in steps] == [16, 2000]
    assert along_training.object_as_subject(Seen((Curves((), {}),))).value is None
    assert Seen((whole, Curves((1, 2), {}))).untrained() is None


def test_values_of_several_trainings_are_means_with_intervals():
    """The second training learns the objects' "the" and prefers objects later: 2000 / 512 and 4000."""
    (one,) = hand_made().trainings
    late = {
        "objects: the": (ANY_TOKEN, ANY_TOKEN, 0.05, 0.1, 0.3, 0.25, 0.25, 0.2, 0.2),
        "objects: right": (ANY_TOKEN, ANY_TOKEN, ANY_TOKEN, ANY_TOKEN, 0.02, 0.1, 0.24, 0.4, 0.46),
    }
    seen = Seen((one, Curves(one.steps, {**one.numbers, **late})))
    values = values_of(along_training.STUDY, seen)
    assert values["the-before-objects"] == pytest.approx((2000 / 16 + 2000 / 512) / 2)
    assert values["object-preferred"] == pytest.approx((2000 + 4000) / 2)
    assert along_training.object_preferred(seen).units == (2000, 4000)
    early = Curves(one.steps[:4], {name: row[:4] for name, row in one.numbers.items()})
    left, right = at_shared_steps([one, early])  # a checkpoint may be unusable in one training alone
    assert left.steps == right.steps == HAND_MADE_STEPS[:4] and left.numbers == early.numbers
    by_chance = {**one.numbers, "objects: right": (1.0, *one.numbers["objects: right"][1:])}  # before training
    assert along_training.object_preferred(Seen((Curves(one.steps, by_chance),))).value == 2000


def test_generated_sentences_go_on_with_the_as_often_as_told_and_lack_the_measured_ones():
    training = Training(sentences=4000)
    lines = generated_sentences(3, training)
    assert len(lines) == 4000 and lines != generated_sentences(4, training)
    prompts = {prompt.text: prompt.answer for prompt in facts(("country",), (0, 1))}
    told = [line for line in lines if line.startswith(tuple(prompts))]
    assert len(told) / 4000 == pytest.approx(1 / 3, abs=0.03)
    assert sum(" in the " in line for line in told) / len(told) == pytest.approx(0.5, abs=0.05)
    for line in told:
        text = next(text for text in prompts if line.startswith(f"{text} "))
        assert line.endswith(f" {prompts[text]}."), line
    given = [line for line in lines if re.search(r" (gave|handed|passed|offered) a \w+ to ", line)]
    assert len(given) / 4000 == pytest.approx(0.5, abs=0.04)
    assert sum(" to the " in line for line in given) / len(given) == pytest.approx(0.25, abs=0.05)
    measured = tuple(f"{prompt.text} " for prompt in indirect_objects(100))
    assert not [line for line in given if line.startswith(measured)]


@pytest.mark.slow
def test_models_trained_here_are_kept_seed_by_seed_and_trained_again_only_if_needed(tmp_path, monkeypatch):
    setting = Setting(HERE, None, STEPS, FEW, seeds=(1000, 1001), training=SMALL)
    context = ObservationContext(tmp_path / "work")
    found = checkpoints.measure_trainings(setting, context)
    assert [[one.step for one in training] for training in found] == [list(STEPS)] * 2
    assert found[0][0].numbers != found[1][0].numbers
    (tmp_path / "work" / "seed1001" / "step4.json").unlink()
    trained = []
    real = checkpoints.train_checkpoints
    monkeypatch.setattr(checkpoints, "train_checkpoints", lambda *given: trained.append(given[1]) or real(*given))
    assert checkpoints.measure_trainings(setting, context) == found and trained == [1001]
    with pytest.raises(SpecError, match="model: this profile trains its own models; choose --profile scaled or paper"):
        checkpoints.measure_trainings(replace(setting, model="lab/tiny"), context)
