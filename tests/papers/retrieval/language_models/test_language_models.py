"""Retrieval prompts put to speakers whose answers are known, on this machine and behind a server."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from anchorlab.cli import main
from anchorlab.errors import SpecError
from anchorlab.language.asking import Asked, LocalSpeaker, Manner, Reply, Said, accuracy, local
from anchorlab.language.asking.likelihood import Likelihoods
from anchorlab.language.endpoint import Access, Endpoint, address_of
from anchorlab.papers.pretrained.opening import open_speaker
from anchorlab.papers.pretrained.tiny import tiny_model
from anchorlab.papers.retrieval.language_models import answers as prompt_answers
from anchorlab.papers.retrieval.language_models import language_models as study
from anchorlab.papers.retrieval.language_models.answers import ERRORS, PromptSetting, answer, error_of, manner_for, put
from anchorlab.papers.retrieval.language_models.conditions import Compared, conditions_of, conditions_table
from anchorlab.runs import Store
from anchorlab.studies import ObservationContext, kept_findings
from anchorlab.tasks import task
from anchorlab.tasks.retrieval.prompts.reading import read
from tests.papers.hand_made_runs import judgements_of

SETTING = PromptSetting(
    "none", questions=24, deep=6, steps=(1, 2, 7), chains=(2, 3), tries=2, manner=Manner(chat=False, begun=True)
)


def formulation_of(text):
    patterns = {"functions": r"\(", "kingdoms": "believe", "relatives": "works as", "lives-with": "lives"}
    return next((name for name, pattern in patterns.items() if re.search(pattern, text)), "equations")


class Speaker:
    """Says what a function makes of the last question."""

    name = "made"

    def __init__(self, says):
        self.says, self.asked = says, []

    def say(self, requests, progress=None):
        self.asked += requests
        if progress is not None and requests:
            progress(len(requests) // 2, len(requests))
        return [Said(self.says(request.turns[-1].text)) for request in requests]


def knowing(text):
    return f" {read(formulation_of(text), text).answer}."


def one_step_early(text):
    hops = read(formulation_of(text), text).hops
    return f" {hops[-2].value if len(hops) > 1 else hops[-1].value}"


def answered(says):
    return answer(Speaker(says), SETTING, lambda status: None, "asking")


def drawn(untrained=None, **answers):
    first, *_ = answers.values()
    return study.STUDY.analysis(
        study.ObservedAnswers(seen=first, untrained=untrained, model="made", answers=answers), SETTING
    )


def analysed(seen):
    analysis = drawn(seen, made=seen)
    return analysis, {measure.name: measure(seen) for measure in study.STUDY.claims}


def test_a_speaker_that_follows_the_chains_is_always_right():
    analysis, found = analysed(answered(knowing))
    assert {one.value for one in found.values()} == {1.0}
    bars, steps, depths, errors = analysis.figures
    assert bars.groups == ("equations", "lives-with", "kingdoms", "functions", "relatives")
    assert all(one.values == (1.0,) * 5 for one in bars.bars)
    assert bars.dashed == (0.25, 0.25, 0.25, 0.25, 1 / 16)
    assert steps.lines[0].x == (1, 2, 7) and steps.lines[0].mean == (1, 1, 1) and steps.references[0].value == 0.25
    assert {line.label: line.mean for line in errors.lines} == {one: (float(one == "right"),) * 3 for one in ERRORS}
    assert depths.lines[0].x == (1, 2, 3, 4, 5)
    assert len(analysis.tables) == 2  # candidates are not scored behind an endpoint


def test_a_constant_speaker_is_seen():
    analysis, found = analysed(answered(lambda text: " 0"))
    assert found["better-than-guessing"].value == 0
    assert found["lives-with"].value == found["relatives"].value == 0
    assert found["short-equations"].value < 0.6
    (table, _) = analysis.tables
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["formulation"], row["favourite"], row["tries"]) == ("equations", 1.0, 1.0)
    assert row["right"] + row["another chain"] == pytest.approx(1)
    lives = dict(zip(table.columns, table.rows[1], strict=True))
    assert (lives["favourite"], lives["tries"], lives["nothing"]) == (0.0, 2.0, 1.0)


def test_the_value_one_step_too_early_is_an_error_of_its_own_in_every_question():
    analysis, found = analysed(answered(one_step_early))
    assert found["kingdoms"].value == 0
    errors = {line.label: line.mean for line in analysis.figures[3].lines}
    assert errors["a step of the chain"] == (0.0, 1.0, 1.0) and errors["right"] == (1.0, 0.0, 0.0)
    assert found["short-equations"].value == pytest.approx(0.5)  # D = 1 of 1 and 2
    assert len(found["kingdoms"].units) == 24
    assert found["kingdoms"].interval == pytest.approx((0.0, 1 - 0.05 ** (1 / 24)))  # exact binomial: none of 24
    assert sum(found["short-equations"].units) == len(found["short-equations"].units) / 2


def test_a_model_that_fails_at_one_step_is_not_judged_by_claims_on_large_models():
    ignorant = judgements_of(study.STUDY, answered(lambda text: " Well"))
    assert ignorant.pop("one-step") == (0, "not met")
    assert set(ignorant.values()) == {(None, "not measured")}
    early = judgements_of(study.STUDY, answered(one_step_early))  # right at one step, wrong beyond
    assert early["one-step"] == (1, "met")
    assert early["kingdoms"] == (0, "differs at small scale")
    assert study.one_step(answer(Speaker(knowing), replace(SETTING, steps=(2,)), lambda status: None, "")).value is None


def test_several_models_are_columns():
    knows, early = answered(knowing), answered(one_step_early)
    analysis = drawn(early, knows=knows, early=early)
    assert analysis.seen is knows  # claims are about the first
    bars, steps, depths, *errors = analysis.figures
    knowing_bars, early_bars = bars.bars
    assert (knowing_bars.label, knowing_bars.values) == ("knows", (1.0,) * 5)
    assert (early_bars.label, early_bars.values[:3]) == ("early", (0.0,) * 3)
    assert {line.label: line.mean for line in steps.lines} == {"knows": (1, 1, 1), "early": (1, 0, 0)}
    assert {line.label: line.mean for line in depths.lines} == {"knows": (1,) * 5, "early": (1, 0, 0, 0, 0)}
    assert [one.title.partition(": ")[2] for one in errors] == ["knows", "early"]
    by_formulation, compared = analysis.tables
    assert [row[:3] for row in by_formulation.rows[:2]] == [("equations", "knows", 1.0), ("equations", "early", 0.0)]
    assert all(len(row) == len(by_formulation.columns) for row in by_formulation.rows)
    row = dict(zip(compared.columns, compared.rows[0], strict=True))
    assert row["knows: right"] == 1 and row["early: right"] == 0 and row["questions"] == SETTING.deep


def test_settings_that_are_refused():
    assert PromptSetting("one, two").models == ("one", "two")
    for model in ("one,", "one,one", ""):
        with pytest.raises(SpecError, match="model"):
            _ = PromptSetting(model).models
    with pytest.raises(SpecError, match="revision"):
        _ = PromptSetting("one,two", "main").models
    with pytest.raises(SpecError, match="questions"):
        analysed(answer(Speaker(knowing), replace(SETTING, questions=0), lambda status: None, "asking"))


QUESTION = task("retrieval/lives-with", steps=2).questions(1)[0]
OTHER = next(word for word in QUESTION.candidates if word != QUESTION.answer)
AWAY = next(word for word in QUESTION.text.split() if word[0].isupper() and word not in (*QUESTION.path, "Where")
            and word not in QUESTION.candidates)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "answer", "error"),
    [
        (QUESTION.answer, QUESTION.answer, "right"),
        (OTHER, OTHER, "another chain"),
        (f" {QUESTION.path[0]}.", None, "a step of the chain"),
        (f"{QUESTION.begun} {QUESTION.path[0]}", None, "a step of the chain"),
        (AWAY, None, "another word"),
        ("I think so", None, "nothing"),
        ("", None, "nothing"),
    ],
)
def test_errors_by_name(text, answer, error):
    reply = Reply(text, "answer" if answer else "other", answer)
    assert error_of(Asked(QUESTION, (reply, Reply("x", "answer", QUESTION.answer)))) == error


def test_guessing_below_the_interval_counts_as_better():
    seen = answered(knowing)
    wrong = {name: tuple(replace(one, replies=(Reply("", "other"),)) for one in own)
             for name, own in seen.formulations.items()}  # fmt: skip
    half = replace(seen, formulations=seen.formulations | {name: wrong[name] for name in ("kingdoms", "relatives")})
    assert study.better_than_guessing(half).value == pytest.approx(3 / 5)
    seen = replace(answered(knowing), steps_scored={1: scored(24), 2: scored(0), 7: scored(24)})
    assert "by likelihood 0.5," in study.short_equations(seen).detail  # not of 7 steps


def scored(right):
    """Scores of 24 questions of each formulation, of which so many have the right candidate as the likeliest."""
    own = tuple(place < right for place in range(24))
    return {"sum": own, "mean": own, "sum over prior": own, "mean over prior": own}


def test_a_wrong_format_is_told_from_ignorance():
    """A model that says nothing acceptable on four formulations, of which it knows two."""
    says = answered(lambda text: knowing(text) if formulation_of(text) == "relatives" else " Well")
    known = {"equations": 24, "lives-with": 20, "kingdoms": 6, "functions": 0, "relatives": 1}
    seen = replace(says, scored={name: scored(right) for name, right in known.items()})
    assert study.better_than_guessing(seen).value == pytest.approx(1 / 5)
    (kingdoms,) = (one for one in study.answered_well if one.name == "kingdoms")
    assert kingdoms(seen).value == 0
    # Wilson's interval of 6 of 24
    assert kingdoms(seen).detail == "guessing 0.25; by likelihood 0.25, 95 % interval 0.12 to 0.45"
    table = drawn(made=seen).tables[1]
    assert table.title == "As text and by likelihood"
    assert {row[0]: row[-1] for row in table.rows} == {
        "equations": "format", "lives-with": "format", "kingdoms": "ignorance", "functions": "ignorance",
        "relatives": "able",
    }  # fmt: skip
    assert {row[0]: row[4] for row in table.rows} == {**dict.fromkeys(known, 0.0), "relatives": 1.0}
    bars = drawn(made=seen).figures[0].bars
    assert bars[-1].values == pytest.approx([1, 20 / 24, 1 / 4, 0, 1 / 24])


def test_depths_share_their_premises_and_a_question_of_several_groups_is_asked_once():
    speaker = Speaker(knowing)
    seen = answer(speaker, SETTING, lambda status: None, "asking")
    premises = [[one.question.text.split("\n")[:-1] for one in own] for own in seen.depths.values()]
    assert all(own == premises[0] for own in premises)
    assert [own[0].question.depth for own in seen.depths.values()] == [1, 2, 3, 4, 5]
    assert all(request.begun for request in speaker.asked)
    speaker = Speaker(knowing)
    seen = answer(speaker, replace(SETTING, steps=(1, 2, 5), chains=(2, 4)), lambda status: None, "asking")
    texts = [request.turns[-1].text for request in speaker.asked]
    assert len(texts) == len(set(texts))
    assert seen.steps[5] == seen.depths[5] and seen.steps[2] == seen.orders["steps"] == seen.chains[4]


def test_progress_counts_questions_within_a_group():
    told = []
    answer(Speaker(knowing), replace(SETTING, tries=1), told.append, "asking")
    # 24 of each formulation: half of the first group, then the next
    assert [(one.done, one.label) for one in told[:3]] == [
        (0, "asking: retrieval/equations"),
        (12, "asking: retrieval/equations"),
        (24, "asking: retrieval/lives-with"),
    ]
    assert all(before.done <= after.done <= after.total for before, after in pairwise(told))


class Recording(LocalSpeaker):
    """Keeps the requests that it reads."""

    def ids(self, request):
        self.requests = [*getattr(self, "requests", []), request]
        return super().ids(request)


@pytest.mark.slow
def test_candidates_are_scored_behind_the_same_worked_examples():
    pytest.importorskip("transformers")
    speaker = Recording(tiny_model())
    manner = Manner(chat=False, begun=True, examples=1, tokens=1)
    setting = replace(SETTING, questions=1, deep=1, steps=(1,), chains=(2,), compared_steps=1, tries=1, manner=manner)
    assert answer(speaker, setting, lambda status: None, "asking").scored
    assert all([turn.role for turn in request.turns] == ["user", "assistant", "user"] for request in speaker.requests)


def test_the_prior_is_that_of_questions_without_premises(monkeypatch):
    pytest.importorskip("transformers")
    """Of a model that favours the first candidate whatever it reads, and finds the right one in the premises."""
    questions = task("retrieval/lives-with", steps=2).questions(24)

    def likely(speaker, requests, candidates, priors):
        def total(asked):
            return torch.tensor(
                [
                    [-1.0 - 2 * (place > 0) + (word == one.answer and "\n" in request.turns[-1].text)
                     for place, word in enumerate(one.candidates)]
                    for one, request in zip(questions, asked, strict=True)
                ]
            )  # fmt: skip

        return Likelihoods(total(requests), torch.ones(24, len(candidates[0]), dtype=torch.int64), total(priors))

    monkeypatch.setattr(prompt_answers.asking, "likelihoods", likely)
    found = prompt_answers._scored(LocalSpeaker(tiny_model()), questions, Manner(), ())
    first = sum(one.candidates[0] == one.answer for one in questions) / 24
    assert first < 0.9
    shares = {how: sum(one[how] for one in found) / 24 for how in found[0]}
    assert shares == {"sum": first, "mean": first, "sum over prior": 1.0, "mean over prior": 1.0}


@pytest.mark.slow
def test_further_tries_and_scores_follow_what_was_read(monkeypatch):
    """Each prompt is read once, whatever is made of it."""
    pytest.importorskip("transformers")
    read = []
    speaker = LocalSpeaker(tiny_model())
    theirs = local.read_prompt
    monkeypatch.setattr(local, "read_prompt", lambda model, ids: read.append(len(ids)) or theirs(model, ids))
    questions = task("retrieval/lives-with", steps=2).questions(6)
    manner = Manner(chat=False, begun=True, tokens=2)
    found = put(speaker, questions, manner, (), 3, True)
    prompts = {tuple(speaker.ids(manner.request(one))) for one in questions}
    priors = {tuple(speaker.ids(manner.without_premises(one))) for one in questions}
    assert sum(read) == len(prompts) + len(priors)
    alone = [put(LocalSpeaker(tiny_model()), [one], manner, (), 1, True)[0] for one in questions]
    assert [one.asked.replies[0] for one in found] == [one.asked.replies[0] for one in alone]
    assert [one.likely for one in found] == [one.likely for one in alone]


@pytest.mark.slow
def test_conditions_put_the_same_questions_with_and_without_template_and_token():
    pytest.importorskip("transformers")
    asking = pytest.importorskip("tests.language.asking.bytes")
    speaker = LocalSpeaker(asking.byte_model("llama"))
    ways = conditions_of(speaker, Manner(begun=True))
    question = task("retrieval/lives-with", steps=2).questions(1)[0]
    ids = {words: one.ids(manner.request(question)) for words, (one, manner) in ways.items()}
    begin = speaker.tokenizer.convert_tokens_to_ids(asking.END)
    for how in ("chat template", "plain text"):
        assert ids[f"{how} behind {asking.END}"] == [begin, *ids[how]]
    without = LocalSpeaker(asking.byte_model("llama", chat=False))
    assert not any(words.startswith("chat") for words in conditions_of(without, Manner()))
    assert manner_for(without, Manner()).chat is False and manner_for(speaker, Manner()).chat is True


def test_the_table_of_conditions():
    right, guess = Compared(accuracy([True] * 4, 0.25), 1.0, accuracy([True] * 4, 0.25)), accuracy([False] * 4, 0.25)
    given = {"chat template": {"kingdoms": right}, "plain text": {"kingdoms": replace(right, first=guess)}}
    table = conditions_table(given)
    shown = [row[:4] for row in table.rows]
    assert shown == [("chat template", "kingdoms", 1.0, 1.0), ("plain text", "kingdoms", 1.0, 0.0)]
    assert all(len(row) == len(table.columns) for row in table.rows)


LIKELIEST = PromptSetting("smollm2", questions=2, deep=1, steps=(1, 3), chains=(2,), tries=1, conditions=0)
COMMAND = ("study", "retrieval/language-models", "--profile", "smoke", "--json")


@pytest.mark.slow
@pytest.mark.nightly
def test_the_likeliest_answers_are_those_of_the_same_weights_here(serving, smollm2, tmp_path):
    """As the profiles ask: chats with the answer begun, written by the model's tokenizer."""
    context = ObservationContext(tmp_path, access=Access(tokenizer="smollm2", concurrent=2))
    served = replace(LIKELIEST, model=address_of(serving, str(smollm2)))
    here, there = (open_speaker(setting, context) for setting in (LIKELIEST, served))
    ours = prompt_answers.answer(here, LIKELIEST, lambda status: None, "asking")
    theirs = prompt_answers.answer(there, served, lambda status: None, "asking")
    assert isinstance(there, Endpoint) and len(next(tmp_path.glob("*.jsonl")).read_text().splitlines()) > 15
    assert ours.scored and not theirs.scored
    assert replace(ours, scored={}, steps_scored={}) == theirs
    texts = {asked.replies[0].text for own in ours.formulations.values() for asked in own}
    assert len(texts) > 5


@pytest.mark.slow
@pytest.mark.nightly
def test_the_command_line_studies_a_served_model(serving, smollm2, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANCHORLAB_STORE", raising=False)
    assert main([*COMMAND, "--model", "smollm2"]) == 0
    assert main([*COMMAND, "--endpoint", serving, "--model", str(smollm2), "--tokenizer", "smollm2"]) == 0
    assert capsys.readouterr().err == ""
    here, there = sorted(kept_findings(Store()), key=lambda one: "#" in one.profile)
    assert there.provenance.model == f"{smollm2} at {serving}"
    assert [one.value for one in there.claims] == [one.value for one in here.claims]
    # what the first answers are: those of further tries are sampled
    (ours, theirs) = (
        next(one for one in found.figures if one.title.startswith("What the first")) for found in (here, there)
    )
    assert ours.lines == theirs.lines
    (ours, *_), (theirs, *_) = here.tables, there.tables
    first = ours.columns.index("at first")
    assert [row[first] for row in theirs.rows] == [row[first] for row in ours.rows]
