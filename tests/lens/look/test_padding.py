"""Sequences of different lengths and this package's models: scores of units and edges, and models that read padding."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from anchorlab.errors import SpecError
from anchorlab.lens import Intervention, look, patch, patch_edges, prune_edges, score_edges, score_units
from anchorlab.models import LSTMSpec
from anchorlab.training.ensemble import initialise
from tests.lens.scoring.reference import BASE, FORMS, SHAPE, drawn, pairs

LENGTHS = torch.tensor([6, 3, 5, 2, 4])
CLEAN, CORRUPTED, *ANSWERS = pairs()


@dataclass(frozen=True)
class Padded:
    """Sequences that are padded on the right."""

    inputs: Tensor
    lengths: Tensor


def padded(sequences: Tensor, filling: int = 7) -> Padded:
    return Padded(sequences.where(torch.arange(6) < LENGTHS.unsqueeze(1), filling), LENGTHS)


def alone(sequences: Tensor) -> list[Tensor]:
    return [row[:length].unsqueeze(0) for row, length in zip(sequences, LENGTHS.tolist(), strict=True)]


@pytest.mark.parametrize("form", ["post", "rms"])
@pytest.mark.parametrize("method", [score_units, score_edges, patch_edges])
def test_scores_are_the_means_of_sequences_alone(form, method):
    ensemble = drawn(FORMS[form])
    found = method(ensemble, padded(CLEAN), padded(CORRUPTED), *ANSWERS, batch_size=2)
    single = [
        method(ensemble, left, right, *(each[[row]] for each in ANSWERS))
        for row, (left, right) in enumerate(zip(alone(CLEAN), alone(CORRUPTED), strict=True))
    ]
    for name in ("values",) if method is score_units else ("edge_values",):
        expected = torch.stack([getattr(one, name) for one in single]).mean(dim=0)
        torch.testing.assert_close(getattr(found, name), expected, atol=1e-9, rtol=1e-6)


def test_pruning_does_not_see_the_padding():
    ensemble = drawn(BASE)

    def pruned(clean, corrupted):
        return prune_edges(ensemble, clean, corrupted, *ANSWERS, threshold=0.05).edge_values

    first = pruned(padded(CLEAN), padded(CORRUPTED))
    torch.testing.assert_close(pruned(padded(CLEAN, 0), padded(CORRUPTED, 3)), first, atol=1e-9, rtol=1e-6)
    assert not torch.allclose(pruned(padded(CLEAN).inputs, padded(CORRUPTED).inputs), first, atol=1e-3)


def test_partners_of_other_lengths_are_refused_where_one_side_is_full():
    full = Padded(CLEAN, torch.full((5,), 6))
    for left, right in ((full, padded(CORRUPTED)), (padded(CLEAN), Padded(CORRUPTED, full.lengths))):
        with pytest.raises(SpecError, match=r"corrupted\.lengths: differ from those of their partners"):
            patch(drawn(BASE), left, right, *ANSWERS)


def test_outputs_that_are_no_numbers_are_not_called_padding_that_is_read():
    ensemble = drawn(BASE)
    broken = ensemble.with_weights({name: value * float("nan") for name, value in ensemble.weights.items()})
    assert look(broken, padded(CLEAN))["output"].isnan().all()


@pytest.mark.parametrize("given", [(padded(CLEAN), CORRUPTED), (CLEAN, padded(CORRUPTED))])
def test_partners_share_their_lengths(given):
    ensemble = drawn(BASE)
    expected = patch(ensemble, padded(CLEAN), padded(CORRUPTED), *ANSWERS)
    torch.testing.assert_close(patch(ensemble, *given, *ANSWERS).difference, expected.difference, atol=1e-9, rtol=1e-6)


def test_the_rule_patch_needs_partners_of_the_same_length():
    swap = Intervention(site="blocks.0.attn.hook_z", rule="patch")
    with pytest.raises(SpecError, match=r"patch_inputs\.lengths: differ from those of their partners"):
        look(drawn(BASE), padded(CLEAN), [], swap, patch_inputs=replace(padded(CLEAN), lengths=LENGTHS.flip(0)))


def test_a_model_without_a_causal_mask_would_read_the_padding():
    with pytest.raises(SpecError, match=r"inputs: have different lengths, .* padding behind it; give sequences of one"):
        look(drawn(FORMS["no-mask"]), padded(CLEAN), "blocks.0.attn.hook_pattern")
    with pytest.raises(SpecError, match=r"clean: have different lengths"):
        patch(drawn(FORMS["no-mask"]), padded(CLEAN), padded(CORRUPTED), *ANSWERS)


def test_a_recurrent_model_reads_no_padding():
    ensemble = initialise(LSTMSpec(), SHAPE, range(1))
    found = look(ensemble, padded(CLEAN), positions=(LENGTHS - 1).unsqueeze(1))["output"][0, :, 0]
    expected = torch.cat([look(ensemble, one)["output"][0, :, -1] for one in alone(CLEAN)])
    torch.testing.assert_close(found, expected)


class Unnamed(nn.Module):
    """A causal sum whose submodules have no names of axes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.split = nn.Embedding(11, 4), nn.Unflatten(-1, (2, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        summed: Tensor = self.split(self.embed(inputs).cumsum(dim=1)).flatten(2)
        return summed


def test_positions_without_a_name_are_no_place_for_a_mean():
    model, mean = Unnamed(), Intervention(site="split", rule="mean")
    with pytest.raises(SpecError, match=r"interventions\.0\.rule: site 'split' has axes without names"):
        look(model, padded(CLEAN), "split", mean)
    axes = {"split": ("batch", "position", "head", "width")}
    found = look(model, padded(CLEAN), "split", mean, axes=axes)["split"][0]
    sums = [model.embed(one)[0].cumsum(dim=0).reshape(-1, 2, 2) for one in alone(CLEAN)]
    for at in range(6):
        expected = torch.stack([one[at] for one in sums if len(one) > at]).mean(dim=0)
        torch.testing.assert_close(found[at < LENGTHS, at], expected.expand(int((at < LENGTHS).sum()), -1, -1))


def test_sequences_of_one_length_are_whole():
    whole = Padded(CLEAN, torch.full((5,), 6))
    assert look(drawn(FORMS["no-mask"]), whole, "blocks.0.attn.hook_pattern").lengths is None
