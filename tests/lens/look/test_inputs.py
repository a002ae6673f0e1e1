"""What a look accepts beside tensors, sequences of different lengths, and what it says of bad inputs."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from anchorlab import lens
from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.lens import Intervention, effects, look, look_by_parts, patch, patch_edges, prune_edges, score_units
from anchorlab.lens.vectors.attribution import attribute, logit_lens
from anchorlab.models import DecoderSpec, FNNSpec, LSTMSpec, VectorSpec
from anchorlab.models.edits import Truncate
from anchorlab.runs import Store
from anchorlab.training import Evaluation, FixedSample, Recipe
from anchorlab.training.ensemble import initialise
from tests.lens.scoring.reference import BASE, FORMS, drawn, pairs

SHAPE = TaskShape("tokens", 6, 11, 11)
INPUTS = torch.randint(0, 11, (4, 6), generator=torch.Generator().manual_seed(0))
PATTERN = "blocks.0.attn.hook_pattern"
ZERO = Intervention(site="blocks.0.attn.hook_z", rule="zero")


@pytest.fixture(scope="module")
def ensemble():
    return initialise(DecoderSpec(layers=1, heads=2, width=8, head_width=4), SHAPE, seeds=[0, 1])


VECTORS = initialise(VectorSpec(layers=1, heads=2, width=8), TaskShape("vectors", 5, 3, 3), seeds=[0])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from anchorlab.engine import train

    recipe = Recipe(duration=1, batch=5, data=FixedSample(size=5), evaluation=Evaluation(size=5))
    model = DecoderSpec(layers=1, heads=2, width=8, head_width=4)
    return train("anchor/identity", model, recipe, seeds=2, store=Store(tmp_path_factory.mktemp("runs")), workers=1)


class TestAccepted:
    def test_a_run_is_its_members_at_the_end_and_a_batch_its_inputs(self, trained):
        batch = trained.experiment.task.sample("test", 3, seed=0)
        by_hand = torch.stack([trained.model(member)(batch.inputs) for member in range(2)])
        assert torch.allclose(look(trained, batch.inputs)["output"], by_hand, atol=1e-6)
        record = look(trained, batch)
        assert torch.equal(record.inputs, batch.inputs)
        assert torch.equal(record["output"], look(trained, batch.inputs)["output"])

    @pytest.mark.parametrize(
        "given", [INPUTS.tolist(), INPUTS.numpy(), INPUTS.numpy().astype(np.uint8), tuple(map(tuple, INPUTS.tolist()))]
    )
    def test_lists_and_arrays(self, ensemble, given):
        assert torch.equal(look(ensemble, given)["output"], look(ensemble, INPUTS)["output"])
        parts = [part["output"] for part in look_by_parts(ensemble, given, batch_size=3)]
        assert [part.shape[1] for part in parts] == [3, 1]

    def test_a_single_name_intervention_and_edit(self, ensemble):
        record = look(ensemble, INPUTS, PATTERN, ZERO)
        listed = look(ensemble, INPUTS, [PATTERN], [ZERO])
        assert set(record) == {PATTERN, "output"}
        assert torch.equal(record["output"], listed["output"])
        assert not torch.equal(record["output"], look(ensemble, INPUTS)["output"])
        cut = Truncate(weight="blocks.0.attn.W_V", rank=1)
        assert torch.equal(look(ensemble, INPUTS, edits=cut)["output"], look(ensemble, INPUTS, edits=[cut])["output"])
        candidates = look(ensemble, INPUTS, candidates={"zero": ZERO, "cut": cut})
        assert torch.equal(candidates["output"][:, 0], listed["output"])

    @pytest.mark.parametrize("positions", [5, [5], np.array([5])])
    def test_positions(self, ensemble, positions):
        last = look(ensemble, INPUTS, positions=torch.tensor([5]))["output"]
        assert torch.equal(look(ensemble, INPUTS, positions=positions)["output"], last)

    def test_lists_of_vectors_shorter_sequences_and_long_ones_without_positions(self, ensemble):
        inputs = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
        assert torch.equal(look(VECTORS, inputs.tolist())["output"], look(VECTORS, inputs)["output"])
        assert look(ensemble, INPUTS[:, :3])["output"].shape == (2, 4, 3, 11)
        lstm = initialise(LSTMSpec(layers=1, width=4), SHAPE, seeds=[0])
        assert look(lstm, INPUTS.repeat(1, 3))["output"].shape == (1, 4, 18, 11)

    @pytest.mark.untyped
    def test_one_axis_is_left_to_a_module_without_sites(self):
        module = nn.Sequential(nn.Embedding(11, 3), nn.Linear(3, 2))
        assert look(module, INPUTS[0])["output"].shape == (1, 6, 2)

    def test_other_instruments_accept_the_same(self, trained):
        batch = trained.experiment.task.sample("test", 3, seed=0)
        ensemble, inputs = trained.ensemble(), batch.inputs
        assert torch.equal(logit_lens(trained, batch), logit_lens(ensemble, inputs))
        assert torch.equal(attribute(trained, batch).logits, attribute(ensemble, inputs).logits)
        given = effects(trained, batch, batch.targets, ZERO, "head")
        assert torch.equal(given.values, effects(ensemble, inputs, batch.targets, ZERO, ["head"]).values)


REFUSED = [
    ({"inputs": INPUTS + 5}, r"inputs: hold \d+, a token outside 0\.\.10; give tokens of the model's own task"),
    ({"inputs": INPUTS - 20}, r"inputs: hold -\d+, a token outside 0\.\.10"),
    ({"inputs": INPUTS.repeat(1, 2)}, "inputs: have 12 positions, and the model reads 6; give at most 6"),
    ({"inputs": [[1, 2], [3]]}, "inputs: have sequences of 1 to 2 positions; give sequences of one length"),
    ({"inputs": INPUTS.float()}, r"inputs: are float32 of shape \(4, 6\), and the model reads tokens; give integers"),
    ({"inputs": INPUTS[None]}, r"inputs: are integers of shape \(1, 4, 6\), and the model reads tokens"),
    ({"inputs": "a b c"}, "inputs: are text; give token ids"),
    ({"inputs": ["a", "b"]}, "inputs: are text; give token ids"),
    ({"inputs": None}, "inputs: NoneType is not numbers; give a tensor, a batch or lists of numbers"),
    ({"inputs": INPUTS[1]}, r"inputs: are one sequence without a batch axis; give a batch of one, inputs\[None\]"),
    ({"inputs": []}, "inputs: holds no sequence; give at least one"),
    ({"record": 3}, "record: int is not a list; give names of sites"),
    ({"record": [3]}, "record.0: int does not belong here; give names of sites"),
    ({"interventions": "hook_z"}, r"interventions: 'hook_z' is not a list; write al\.Intervention"),
    ({"interventions": ["hook_z"]}, r"interventions\.0: 'hook_z' does not belong here; write al\.Intervention"),
    ({"edits": [ZERO]}, r"edits\.0: Intervention does not belong here"),
    ({"candidates": [ZERO]}, "candidates: have no names; give lists of interventions and edits by name"),
    ({"candidates": {"a": 3}}, r"candidates\.a: int is not a list; give interventions or edits"),
    ({"positions": [6]}, r"positions: hold 6, a position outside 0\.\.5"),
    ({"positions": [-1]}, r"positions: hold -1, a position outside 0\.\.5"),
    ({"positions": [0.5]}, r"positions: are float32 of shape \(1,\); give integers"),
    ({"positions": [[1], [2]]},
     r"positions: are integers of shape \(2, 1\); give integers, \[scored\] or \[4 scored\]"),
    ({"patch_inputs": INPUTS + 5}, r"patch_inputs: hold \d+, a token outside"),
    ({"model": "mine.toml"},
     r"model: 'mine\.toml' is not a model; train the grid of a file with `anchorlab sweep mine"),
    ({"model": "smollm2"}, r"model: 'smollm2' is not a model; open it with al\.pretrained"),
    ({"model": DecoderSpec()}, "model: DecoderSpec is not a model; give an ensemble, a run or a module"),
    *(({"model": VECTORS, "inputs": given}, r"inputs: .*; give vectors \[batch position feature\] of 3 features")
      for given in (INPUTS, torch.zeros(2, 5, 4), torch.zeros(5))),
    *(({"model": initialise(spec(layers=1, width=4), SHAPE, seeds=[0]), "inputs": INPUTS + 9},
       r"inputs: hold \d+, a token outside 0\.\.10") for spec in (LSTMSpec, FNNSpec)),
]  # fmt: skip


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_cannot_be_read_is_named(ensemble, given, message):
    with pytest.raises(SpecError, match=f"^{message}") as caught:
        look(**{"model": ensemble, "inputs": INPUTS, **given})
    assert "\n" not in str(caught.value)


# Sequences of different lengths and this package's models: scores of units and edges, and models that read padding.
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
@pytest.mark.parametrize("method", [score_units, lens.score_edges, patch_edges])
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


@pytest.mark.parametrize("baseline", ["pair", "mean"])
def test_pruning_does_not_see_the_padding(baseline):
    ensemble = drawn(BASE)

    def pruned(clean, corrupted):
        return prune_edges(ensemble, clean, corrupted, *ANSWERS, threshold=0.05, baseline=baseline).edge_values

    first = pruned(padded(CLEAN), padded(CORRUPTED))
    torch.testing.assert_close(pruned(padded(CLEAN, 0), padded(CORRUPTED, 3)), first, atol=1e-9, rtol=1e-6)
    assert not torch.allclose(pruned(padded(CLEAN).inputs, padded(CORRUPTED).inputs), first, atol=1e-3)


@pytest.mark.parametrize("given", [(padded(CLEAN), CORRUPTED), (CLEAN, padded(CORRUPTED))])
def test_partners_share_their_lengths(given):
    ensemble = drawn(BASE)
    expected = patch(ensemble, padded(CLEAN), padded(CORRUPTED), *ANSWERS)
    torch.testing.assert_close(patch(ensemble, *given, *ANSWERS).difference, expected.difference, atol=1e-9, rtol=1e-6)


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


FULL = Padded(CLEAN, torch.full((5,), 6))
SWAP = Intervention(site="blocks.0.attn.hook_z", rule="patch")
UNEVEN = [
    ("post", lambda model: patch(model, FULL, padded(CORRUPTED), *ANSWERS),
     r"corrupted\.lengths: differ from the partners' lengths"),
    ("post", lambda model: patch(model, padded(CLEAN), Padded(CORRUPTED, FULL.lengths), *ANSWERS),
     r"corrupted\.lengths: differ from the partners' lengths"),
    ("post", lambda model: look(model, padded(CLEAN), [], SWAP, patch_inputs=Padded(CLEAN, LENGTHS.flip(0))),
     r"patch_inputs\.lengths: differ from the partners' lengths"),
    *(("post", lambda model, rule=rule: look(model, padded(CLEAN), [], Intervention(
        site="blocks.0.attn.hook_z", where={"position": [3, -1]}, **rule)),
       r"^interventions\.0\.where\.position: index 3 is out of range; the shortest sequence has 2 tokens")
      for rule in ({"rule": "mean"}, {"rule": "resample", "seed": 0})),
    ("no-mask", lambda model: look(model, padded(CLEAN), "blocks.0.attn.hook_pattern"),
     r"inputs: have different lengths, .* padding behind it; give sequences of one"),
    ("no-mask", lambda model: patch(model, padded(CLEAN), padded(CORRUPTED), *ANSWERS),
     r"clean: have different lengths"),
    ("post", lambda model: lens.probe(model, padded(CLEAN), CLEAN[:, 0], "blocks.0.attn.hook_pattern"),
     r"^site: blocks\.0\.attn\.hook_pattern has the axes query, key, and the sequences have different lengths; read"),
    ("post", lambda model: effects(model, CLEAN, CLEAN[:, -1:], ZERO, 3),
     r"^over: int is not a list; give names of axes"),
]  # fmt: skip


@pytest.mark.untyped
@pytest.mark.parametrize(("form", "ask", "message"), UNEVEN)
def test_lengths_and_sweeps_that_do_not_fit_are_named(form, ask, message):
    with pytest.raises(SpecError, match=message):
        ask(drawn(FORMS[form]))


def test_sequences_of_one_length_are_whole_and_outputs_that_are_no_numbers_no_padding_that_is_read():
    assert look(drawn(FORMS["no-mask"]), FULL, "blocks.0.attn.hook_pattern").lengths is None
    ensemble = drawn(BASE)
    broken = ensemble.with_weights({name: value * float("nan") for name, value in ensemble.weights.items()})
    assert look(broken, padded(CLEAN))["output"].isnan().all()
