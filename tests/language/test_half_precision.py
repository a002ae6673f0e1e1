"""Models in half precision: probabilities, differences and scores of what they return are computed in float32."""

import pytest
import torch

from anchorlab.language import (
    LanguageModel,
    Questions,
    control_truncation,
    next_words,
    search_truncations,
    text_losses,
    wrap,
)
from anchorlab.lens import Intervention, attribute, detect, detectors, effects, look, patch, record_patterns
from anchorlab.models import Truncate
from tests.language.spoken import PROMPTS, token, tokenizer
from tests.language.tiny import hugging_face, tokens

HALVES = (torch.bfloat16, torch.float16)
PATTERNS = "blocks.*.attn.hook_pattern"


@pytest.fixture(params=HALVES, ids=str)
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return wrap(hugging_face("llama", request.param), tokenizer())


def _logits(model: LanguageModel, ids: torch.Tensor) -> torch.Tensor:
    """What transformers computes in half precision, exactly as float64."""
    with torch.no_grad():
        return model.hugging_face(ids, use_cache=False).logits.double()


def test_log_probabilities_are_those_of_the_logits_in_float32(model: LanguageModel) -> None:
    asked = Questions(model, PROMPTS)
    found = asked.answers()
    for place, prompt in enumerate(PROMPTS):
        p = _logits(model, torch.tensor([[0, *tokenizer()(prompt.text)["input_ids"]]]))[0, -1].log_softmax(-1)
        assert prompt.answer is not None
        assert found.right.dtype == torch.float32
        torch.testing.assert_close(found.right[place].double(), p[token(prompt.answer)], atol=2e-6, rtol=0)
    searched = search_truncations(asked, ["blocks.1.mlp.W_in"], [0.5], progress=False)
    assert bool(searched.loss.isfinite().all())
    controls = control_truncation(asked, Truncate(weight="blocks.1.mlp.W_in", rank=2), tokens(), 2, progress=False)
    assert bool(controls.random_gains.isfinite().all())


def test_next_words_and_losses_are_computed_in_float32(model: LanguageModel) -> None:
    ids = torch.tensor([[0, *tokenizer()("Madrid is")["input_ids"]]])
    words = next_words(model, "Madrid is", k=3)
    expected = _logits(model, ids)[0, -1].softmax(-1).topk(3)
    assert [value for _, value in words] == pytest.approx(expected.values.tolist(), abs=1e-6)
    p = _logits(model, tokens()).log_softmax(-1)
    losses = -p[:, :-1].gather(-1, tokens()[:, 1:, None])[..., 0]
    torch.testing.assert_close(text_losses(model, tokens()).double(), losses, atol=1e-5, rtol=1e-6)


def test_effects_and_differences_are_computed_in_float32(model: LanguageModel) -> None:
    targets, idle = torch.arange(3).unsqueeze(1), Intervention(site="blocks.1.attn.hook_z", rule="scale", operand=1.0)
    logits = _logits(model, tokens())[:, -1]
    p = logits.softmax(-1).gather(-1, targets).mean()
    found = effects(model, tokens(), targets, idle, mapped=False)
    torch.testing.assert_close(found.baseline[2, 0], p, atol=1e-7, rtol=1e-6)
    difference = (logits.gather(-1, targets) - logits.gather(-1, targets + 3)).mean()
    patched = patch(model, tokens(), tokens().flip(0), targets, targets + 3, site="blocks.1.attn.hook_z", over="head")
    torch.testing.assert_close(patched.clean[0], difference, atol=1e-6, rtol=1e-6)


def test_contributions_add_up_as_they_were_recorded(model: LanguageModel) -> None:
    """Rounding to half precision within the model is all that separates the sum from the logits."""
    found = attribute(model, tokens(), tokens()[:, :1])
    assert found.contributions.dtype == found.logits.dtype == torch.float32
    record = look(model, tokens(), ["hook_embed"])
    assert torch.equal(found.logits[0, :, 0], record["output"][0, :, -1].float().gather(-1, tokens()[:, :1])[:, 0])


def test_detectors_average_in_float32(model: LanguageModel) -> None:
    record = look(model, tokens(), PATTERNS, output=False)
    exact = [record[site][0].double() for site in record]
    found, expected = (detect(one)["value"].to_numpy() for one in (record, record_patterns(exact, tokens())))
    assert abs(found - expected).max() < 1e-6
    for name in ("shift", "uniform", "first_token", "fixed_position", "previous_token"):
        more = {"shift": (2,), "fixed_position": (3,)}.get(name, ())
        score = getattr(detectors, name)
        half = score(record["blocks.1.attn.hook_pattern"], *more)
        torch.testing.assert_close(half.double(), score(exact[1][None], *more), atol=1e-6, rtol=0)
