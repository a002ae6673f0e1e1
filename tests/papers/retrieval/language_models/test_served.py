"""The same weights on this machine and behind a real server give the same answers."""

from dataclasses import replace

import pytest

pytest.importorskip("openai")

from anchorlab.cli import main
from anchorlab.language.endpoint import Access, Endpoint, address_of
from anchorlab.papers.pretrained.opening import open_speaker
from anchorlab.papers.retrieval.language_models.answers import PromptSetting, answer
from anchorlab.runs import Store
from anchorlab.studies import ObservationContext, kept_findings

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

LIKELIEST = PromptSetting("smollm2", questions=2, deep=1, steps=(1, 3), chains=(2,), tries=1, conditions=0)
STUDY = ("study", "retrieval/language-models", "--profile", "smoke", "--json")


def test_the_likeliest_answers_are_those_of_the_same_weights_here(serving, smollm2, tmp_path):
    """As the profiles ask: chats with the answer begun, written by the model's tokenizer."""
    context = ObservationContext(tmp_path, access=Access(tokenizer="smollm2", concurrent=2))
    served = replace(LIKELIEST, model=address_of(serving, str(smollm2)))
    here, there = (open_speaker(setting, context) for setting in (LIKELIEST, served))
    ours = answer(here, LIKELIEST, lambda status: None, "asking")
    theirs = answer(there, served, lambda status: None, "asking")
    assert isinstance(there, Endpoint) and len(next(tmp_path.glob("*.jsonl")).read_text().splitlines()) > 15
    assert ours.scored and not theirs.scored
    assert replace(ours, scored={}, steps_scored={}) == theirs
    texts = {asked.replies[0].text for own in ours.formulations.values() for asked in own}
    assert len(texts) > 5


def test_the_command_line_studies_a_served_model(serving, smollm2, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANCHORLAB_STORE", raising=False)
    assert main([*STUDY, "--model", "smollm2"]) == 0
    assert main([*STUDY, "--endpoint", serving, "--model", str(smollm2), "--tokenizer", "smollm2"]) == 0
    assert capsys.readouterr().err == ""
    here, there = sorted(kept_findings(Store()), key=lambda one: "#" in one.profile)
    assert there.provenance.model == f"{smollm2} at {serving}"
    assert [one.claim.id for one in there.claims if one.value is None] == [
        "retrieval/language-models/known-by-likelihood"
    ]
    # what the first answers are: those of further tries are sampled
    (ours, theirs) = (
        next(one for one in found.figures if one.title.startswith("What the first")) for found in (here, there)
    )
    assert ours.lines == theirs.lines
    (ours, *_), (theirs, *_) = here.tables, there.tables
    first = ours.columns.index("at first")
    assert [row[first] for row in theirs.rows] == [row[first] for row in ours.rows]
