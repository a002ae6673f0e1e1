"""Texts of different lengths: every instrument gives what the texts give one by one, and padding never counts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anchorlab as al
from anchorlab import lens as of
from anchorlab.errors import SpecError
from anchorlab.language import LanguageModel, text_losses, wrap
from anchorlab.language.encode import TokenisedTexts
from tests.language.tiny import TOKENS, WIDTH, hugging_face, tokens, transformers

LENGTHS = torch.tensor([11, 4, 7, 9])
RAGGED = ("gpt2", "llama", "gpt_neox-parallel")
Z = "blocks.1.attn.hook_z"
SITES = ["hook_embed", "blocks.0.hook_resid_post"]
PATTERNS = "blocks.*.attn.hook_pattern"


def texts(shift: int = 0) -> TokenisedTexts:
    """Four texts, with padding that would change every mean."""
    ids = (tokens(4) + shift) % TOKENS
    return TokenisedTexts(ids.where(torch.arange(11) < LENGTHS.unsqueeze(1), 5), LENGTHS)


def alone(given: TokenisedTexts) -> list[Tensor]:
    """Each text by itself, `[1 position]`."""
    return [row[:length].unsqueeze(0) for row, length in zip(given.inputs, given.lengths.tolist(), strict=True)]


def mean_of(measure: Callable[[Tensor, Tensor], Tensor], *each: list[Any]) -> Tensor:
    """The mean of a measure over texts alone."""
    return torch.stack([measure(*one) for one in zip(*each, strict=True)]).mean(dim=0)


@pytest.fixture
def model() -> LanguageModel:
    return wrap(hugging_face("llama"))


@pytest.mark.parametrize("name", RAGGED)
def test_the_last_token_of_each_text_is_scored_as_transformers_scores_it_alone(name):
    theirs = hugging_face(name)
    targets = torch.arange(4).unsqueeze(1)
    with torch.no_grad():
        logits = [theirs(one, use_cache=False).logits[0, -1] for one in alone(texts())]
    expected = torch.stack([row[target] for row, target in zip(logits, range(4), strict=True)])
    opened = wrap(theirs)
    zero = of.Intervention(site=Z, rule="zero")
    for mapped in (True, False):
        found = of.effects(opened, texts(), targets, zero, ("head",), mapped=mapped)
        torch.testing.assert_close(found.baseline[1, 0].float(), expected.mean(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(of.attribute(opened, texts(), targets).logits[0, :, 0], expected, atol=1e-3, rtol=1e-4)
    none = of.steer(opened, texts(), targets, torch.ones(WIDTH), "blocks.0.hook_resid_post", [0])
    torch.testing.assert_close(none.values[1, 0, 0, 0].float(), expected.mean(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("mapped", [True, False])
def test_effects_are_the_means_of_texts_alone(model, mapped):
    targets, zero = list(torch.arange(4).reshape(4, 1, 1)), of.Intervention(site=Z, rule="zero")
    found = of.effects(model, texts(), torch.cat(targets), zero, ("head",), mapped=mapped)
    one_by_one = mean_of(
        lambda one, target: of.effects(model, one, target, zero, ("head",)).values, alone(texts()), targets
    )
    torch.testing.assert_close(found.values, one_by_one, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("over", ["head", "position", ("head", "position")])
def test_patching_is_the_mean_of_texts_alone(model, over):
    """A text without a position keeps the difference of its corrupted run there."""
    clean, corrupted, answers = alone(texts()), alone(texts(3)), list(torch.arange(4).reshape(4, 1, 1))
    found = of.patch(model, texts(), texts(3), torch.cat(answers), torch.cat(answers) + 5, site=Z, over=over)
    single = [
        of.patch(model, left, right, answer, answer + 5, site=Z, over=over)
        for left, right, answer in zip(clean, corrupted, answers, strict=True)
    ]
    for name in ("clean", "corrupted"):
        expected = torch.stack([getattr(one, name) for one in single]).mean(dim=0)
        torch.testing.assert_close(getattr(found, name), expected, atol=1e-5, rtol=1e-5)
    padded = []
    for one in single:
        whole = one.corrupted.reshape(-1, *(1,) * (found.difference.ndim - 1)).expand_as(found.difference).clone()
        whole[..., : one.difference.shape[-1]] = one.difference
        padded.append(whole if "position" in over else one.difference)
    torch.testing.assert_close(found.difference, torch.stack(padded).mean(dim=0), atol=1e-5, rtol=1e-4)


def test_steering_at_the_last_token_is_the_mean_of_texts_alone(model):
    site, direction, targets = (
        "blocks.0.hook_resid_post", torch.linspace(-1, 1, WIDTH), list(torch.arange(4).reshape(4, 1, 1)),
    )  # fmt: skip

    def steered(given: Any, target: Tensor) -> Tensor:
        return of.steer(
            model, given, target, direction, site, [0, 3], where={"position": -1}, random_directions=1
        ).values

    expected = mean_of(steered, alone(texts()), targets)
    torch.testing.assert_close(steered(texts(), torch.cat(targets)), expected, atol=1e-5, rtol=1e-4)


def test_paths_are_the_means_of_texts_alone(model):
    answers = list(torch.arange(4).reshape(4, 1, 1))

    def found(clean: Any, corrupted: Any, answer: Tensor) -> Tensor:
        paths = of.patch_paths(model, clean, corrupted, [(0, 1)], [(1, 2)], answer, answer + 5)
        return torch.cat([paths.difference.flatten(), paths.clean, paths.corrupted])

    expected = mean_of(found, alone(texts()), alone(texts(3)), answers)  # type: ignore[arg-type]
    torch.testing.assert_close(found(texts(), texts(3), torch.cat(answers)), expected, atol=1e-5, rtol=1e-4)


def _own(model: LanguageModel, site: str) -> list[Tensor]:
    """A site's values for each text alone, `[position ...]`."""
    return [of.look(model, one, [site], output=False)[site][0, 0] for one in alone(texts())]


@pytest.mark.parametrize("mapped", [True, False])
def test_means_are_over_the_texts_that_have_a_token_there(model, mapped):
    values = _own(model, Z)
    means = torch.stack([torch.stack([one[at] for one in values if len(one) > at]).mean(dim=0) for at in range(11)])
    targets = torch.arange(4).unsqueeze(1)
    rule = of.Intervention(site=Z, rule="mean")
    by_hand = [
        of.Intervention(
            site=Z,
            rule="replace",
            operand=al.lens.Operand(values=means[: len(one)], axes=("position", "head", "head_width")),
        )
        for one in values
    ]
    outputs = [
        of.look(model, one, interventions=[each])["output"][0, 0, -1]
        for one, each in zip(alone(texts()), by_hand, strict=True)
    ]
    record = of.look(model, texts(), [Z], [rule], batch_size=3)
    for row, (output, one) in enumerate(zip(outputs, values, strict=True)):
        torch.testing.assert_close(record[Z][0, row, : len(one)], means[: len(one)], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(record["output"][0, row, len(one) - 1], output, atol=1e-4, rtol=1e-4)
    expected = torch.stack([output[target] for output, target in zip(outputs, range(4), strict=True)]).mean()
    found = of.effects(model, texts(), targets, rule, mapped=mapped).values[1].float()
    torch.testing.assert_close(found.squeeze(), expected, atol=1e-4, rtol=1e-4)


def test_the_mean_pattern_is_over_the_texts_with_such_a_query(model):
    site = "blocks.1.attn.hook_pattern"
    own = _own(model, site)
    record = of.look(model, texts(), [site], [of.Intervention(site=site, rule="mean")])
    for query in range(11):
        rows = torch.stack([one[:, query, : query + 1] for one in own if one.shape[1] > query])
        torch.testing.assert_close(record[site][0, 0, :, query, : query + 1], rows.mean(dim=0), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_another_text_with_a_token_there_gives_its_value(model, seed):
    values = _own(model, Z)
    rule = of.Intervention(site=Z, rule="resample", seed=seed, where={"position": tuple(range(9))})
    record = of.look(model, texts(), [Z], [rule], batch_size=2)
    for row, length in enumerate(LENGTHS.tolist()):
        for at in range(min(length, 9)):
            others = [one[at] for other, one in enumerate(values) if other != row and len(one) > at]
            near = [bool(torch.allclose(record[Z][0, row, at], other, atol=1e-5)) for other in others]
            assert sum(near) == 1, (row, at)


def test_the_last_tokens_of_other_texts_are_drawn_from_all(model):
    values = _own(model, Z)
    rule = of.Intervention(site=Z, rule="resample", seed=0, where={"position": -1})
    record = of.look(model, texts(), [Z], [rule])
    taken = []
    for row, length in enumerate(LENGTHS.tolist()):
        near = [bool(torch.allclose(record[Z][0, row, length - 1], one[-1], atol=1e-5)) for one in values]
        taken.append(near.index(True))
    assert sorted(taken) == [0, 1, 2, 3] and all(other != row for row, other in enumerate(taken))


def test_a_record_knows_the_lengths_of_its_texts_and_heads_are_matched_by_them(model):
    record = of.look(model, texts(), PATTERNS, output=False)
    raw = of.look(model, texts().inputs, PATTERNS, output=False)
    expected = of.detect(raw, lengths=LENGTHS)
    assert of.detect(record).equals(expected) and not of.detect(raw).equals(expected)
    assert of.detect(of.look_by_parts(model, texts(), PATTERNS, output=False, batch_size=3)).equals(expected)
    patterns = [record[site][0] for site in record]
    assert of.detect(of.record_patterns(patterns, texts())).drop("layer").equals(expected.drop("layer"))
    assert record.plot("blocks.1.attn.hook_pattern", batch=1, head=0).axes[0].images[0].get_array().shape == (4, 4)
    record = of.look(model, texts(), PATTERNS, output=False)
    single = [of.match_heads(of.look(model, one, PATTERNS, output=False)) for one in alone(texts())]
    expected = torch.stack([one.similarities for one in single]).mean(dim=0)
    torch.testing.assert_close(of.match_heads(record).similarities, expected)


def test_similarity_and_probes_leave_padding_out(model):
    rows = {site: torch.cat(_own(model, site)).double() for site in SITES}
    centred = {site: value - value.mean(dim=0) for site, value in rows.items()}
    cross, left, right = ((centred[a].T @ centred[b]).square().sum() for a, b in (SITES, SITES[:1] * 2, SITES[1:] * 2))
    record = of.look(model, texts(), SITES, output=False)
    torch.testing.assert_close(of.cka(record).values[0, 0, 0, 1], cross / (left * right).sqrt(), atol=1e-6, rtol=1e-5)
    labels = tokens(4) % 2
    marked = labels.masked_fill(torch.arange(11) >= LENGTHS.unsqueeze(1), -1)
    found, expected = (
        of.probe(model, given, each, SITES, folds=2) for given, each in ((texts(), labels), (texts().inputs, marked))
    )
    assert torch.equal(found.accuracy, expected.accuracy) and found.majority == expected.majority


def test_losses_of_padding_are_not_numbers_and_an_encoding_gives_its_lengths(model):
    found = text_losses(model, texts())
    for row, one in enumerate(alone(texts())):
        torch.testing.assert_close(found[row, : one.shape[1] - 1], text_losses(model, one)[0], atol=1e-4, rtol=1e-4)
        assert bool(found[row, one.shape[1] - 1 :].isnan().all())
    mask = (torch.arange(11) < LENGTHS.unsqueeze(1)).long()
    encoding = transformers.BatchEncoding({"input_ids": texts().inputs, "attention_mask": mask})
    found = of.attribute(model, encoding, torch.arange(4).unsqueeze(1))
    last = found.by_token.filter(component="blocks.0.mlp")
    assert last["position"].to_list() == [length - 1 for length in LENGTHS.tolist()]
    assert last["token"].to_list() == [str(int(one[0, -1])) for one in alone(texts())]  # this model has no tokenizer
    assert torch.equal(found.logits, of.attribute(model, texts(), torch.arange(4).unsqueeze(1)).logits)
    with torch.no_grad():
        assert torch.equal(model(texts().inputs, attention_mask=mask), model(texts().inputs))
    whole = of.look(model, {"input_ids": tokens(), "attention_mask": torch.ones_like(tokens())}, Z)
    assert whole.lengths is None


def zero(**given):
    return of.Intervention(site=Z, rule="zero", **given)


LATE = {"position": LENGTHS - 2 + 2 * (LENGTHS == 4)}
LEFT = {"input_ids": tokens(4), "attention_mask": torch.arange(11) >= LENGTHS[:, None] - 4}
SHORT = {"input_ids": tokens(4), "attention_mask": tokens()}
BITS = torch.tensor([0, 1, 0, 1])
SHUFFLED = TokenisedTexts(tokens(4), LENGTHS.flip(0))


@pytest.mark.untyped  # lengths of another number
@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda model: of.look(model, texts(), positions=[5]), r"positions: hold one .* 4 to 11 tokens; give each"),
        (lambda model: of.look(model, texts(), positions=LENGTHS.unsqueeze(1)), r"positions"),
        (lambda model: of.look(model, texts(), interventions=zero(at=LATE)),
         r"interventions\.0\.at\.position: sequence 1 has 4 tokens, and no place 4"),
        (lambda model: of.look(model, texts(), interventions=zero(where={"position": -5})),
         r"where\.position: index -5 is out of range; the shortest sequence has 4"),
        (lambda model: of.look(model, TokenisedTexts(tokens(4), LENGTHS[:3])), r"inputs\.lengths: .* give 4 integers"),
        (lambda model: of.look(model, TokenisedTexts(tokens(4), LENGTHS + 1)), r"inputs\.lengths: are 5 to 12"),
        (lambda model: of.look(model, TokenisedTexts(tokens(4), LENGTHS - 4)), r"inputs\.lengths: are 0 to 7"),
        (lambda model: of.patch(model, texts(), SHUFFLED, LENGTHS[:, None], LENGTHS[:, None] + 1),
         r"corrupted\.lengths: differ"),
        (lambda model: of.look(model, LEFT), r"inputs\.attention_mask: .*padding on the left; pad on the right"),
        (lambda model: model(tokens(4), attention_mask=(torch.arange(11) > 2).expand(4, -1)), "attention_mask: .*left"),
        (lambda model: of.look(model, SHORT), r"attention_mask: has shape"),
        (lambda model: of.look(model, texts(), interventions=of.Intervention(site=Z, rule="resample", seed=0)),
         r"interventions\.0\.rule: a single sequence has a token at place 9"),
        (lambda model: of.cka(of.look(model, texts(), PATTERNS, output=False)), "different lengths"),
        (lambda model: of.probe(model, texts(), BITS, SITES, folds=2),
         r"positions: are missing, and the sequences have different lengths"),
        (lambda model: of.probe(model, texts(), BITS, SITES, where={"position": -1}, folds=2), r"where\.position"),
        (lambda model: of.recorded_directions(of.look(model, texts(), ["blocks.*.attn.hook_[qk]"], output=False)),
         "different lengths"),
    ],
)  # fmt: skip
def test_what_would_read_padding_is_refused(model, use, said):
    with pytest.raises(SpecError, match=said):
        use(model)
