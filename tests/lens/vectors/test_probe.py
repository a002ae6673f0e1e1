"""Probes at sites that hold a label by construction, and beside scikit-learn's discriminant."""

import pytest
import torch

import anchorlab as al
from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.lens import look, probe
from anchorlab.models import DecoderSpec, FNNSpec
from anchorlab.training.ensemble import initialise
from tests.lens.hand_built import ANCHOR, LENGTH, VOCABULARY, identity_solver, stacked

GENERATOR = torch.Generator().manual_seed(0)


def sequences(count=120):
    """Sequences of other tokens with one anchor at a random place from 1 to 7, and the token after it."""
    inputs = torch.randint(4, VOCABULARY, (count, LENGTH), generator=GENERATOR)
    anchors = torch.randint(1, LENGTH - 1, (count,), generator=GENERATOR)
    rows = torch.arange(count)
    inputs[rows, anchors] = ANCHOR
    return inputs, anchors, inputs[rows, anchors + 1]


INPUTS, ANCHORS, KEYS = sequences()


@pytest.fixture(scope="module")
def found():
    return probe(stacked(identity_solver(), identity_solver()), INPUTS, KEYS)


class TestHandBuilt:
    """The answer reaches the last position in layer 1 alone, and there it is one-hot."""

    def test_the_label_is_read_where_it_is_by_construction_and_nowhere_before(self, found):
        assert found.accuracy.shape == (2, 2, LENGTH)
        assert (found.accuracy[:, 1, -1] == 1).all()
        # Before layer 1 the last position holds its own token and the one before it, which tells a few keys.
        assert (found.accuracy[:, 0, -1] < 0.5).all() and (found.accuracy[:, :, 0] < 0.4).all()

    def test_shuffled_labels_are_at_chance_also_in_the_table(self, found):
        assert found.shuffled.shape == (10, 2, 2, LENGTH)
        chance = KEYS.bincount().double().div(len(KEYS)).square().sum().item()  # of guessing by the shares
        assert found.shuffled[..., 1, -1].mean().item() == pytest.approx(chance, abs=0.08)
        assert found.shuffled.amax() < 0.4
        assert found.majority == pytest.approx(KEYS.bincount().max().item() / len(KEYS))
        table = found.table
        values = ["accuracy", "shuffled", "shuffled_most", "untrained", "majority"]
        assert table.columns == ["member", "site", "layer", "position", *values]
        row = table.row(-1, named=True)
        assert (row["member"], row["layer"], row["position"], row["accuracy"]) == (1, 1, LENGTH - 1, 1.0)
        assert row["shuffled"] < row["shuffled_most"] < 0.4 and row["untrained"] is None


def test_labels_of_positions_have_one_probe():
    """Every position holds its token and its place one-hot; a token of the future is nowhere."""
    model = identity_solver()
    places = torch.arange(LENGTH).expand_as(INPUTS)
    future = INPUTS.roll(-2, dims=1)
    future[:, -2:] = -1  # left out
    for labels, low, high in ((INPUTS, 1, 1), (places, 1, 1), (future, 0, 0.3)):
        found = probe(model, INPUTS, labels, "blocks.0.hook_resid_pre", shuffles=3)
        assert found.accuracy.shape == (1, 1)
        assert low <= found.accuracy.item() <= high
        assert found.shuffled.amax() < 0.3


def test_held_out_positions():
    """The token is read at positions never seen; a position never seen cannot be named."""
    token = probe(identity_solver(), INPUTS, INPUTS, "blocks.0.hook_resid_pre", held_out="positions", shuffles=1)
    place = torch.arange(LENGTH).expand_as(INPUTS)
    where = probe(identity_solver(), INPUTS, place, "blocks.0.hook_resid_pre", held_out="positions", shuffles=1)
    assert token.accuracy.item() == 1
    assert where.accuracy.item() == 0


def test_roles_and_single_heads():
    """At the key, layer 0's first head has brought the anchor, and the others nothing that is written."""
    model = identity_solver()
    after = (ANCHORS + 1).unsqueeze(1)
    here = probe(model, INPUTS, KEYS, "blocks.0.hook_resid_pre", positions=after)
    assert here.accuracy.tolist() == [[[1.0]]]
    end = torch.tensor([LENGTH - 1])
    heads = [
        probe(model, INPUTS, KEYS, "blocks.1.attn.hook_z", positions=end, where={"head": head}, shuffles=1)
        for head in range(3)
    ]
    assert heads[0].accuracy.item() == 1
    assert heads[1].accuracy.item() < 0.4 and heads[2].accuracy.item() < 0.4


def test_agrees_with_scikit_learn():
    """Fold by fold, with hardly any shrinkage, on values of full rank."""
    discriminant = pytest.importorskip("sklearn.discriminant_analysis").LinearDiscriminantAnalysis
    shape = TaskShape("tokens", LENGTH, VOCABULARY, VOCABULARY)
    model = initialise(DecoderSpec(layers=1, heads=2, width=8, head_width=4, hidden=9), shape, [0, 1, 2])
    labels = KEYS % 3
    found = probe(model, INPUTS, labels, "blocks.0.hook_resid_mid", folds=len(INPUTS), shrinkage=1e-12, shuffles=1)
    values = look(model, INPUTS, "blocks.0.hook_resid_mid")["blocks.0.hook_resid_mid"].double()
    rows = torch.arange(len(INPUTS))
    for member, place in ((0, 8), (1, 5), (2, 8)):
        right = 0
        for row in rows:  # leaving one sequence out does not depend on how folds are drawn
            others = rows != row
            fitted = discriminant(solver="lsqr").fit(values[member, others, place], labels[others])
            right += int(fitted.predict(values[member, [row], place])[0] == labels[row])
        assert found.accuracy[member, 0, place].item() == pytest.approx(right / len(rows))


def test_a_site_without_positions():
    model = initialise(FNNSpec(layers=1, width=4, hidden=6), TaskShape("tokens", LENGTH, VOCABULARY, VOCABULARY), [0])
    found = probe(model, INPUTS, KEYS, "blocks.*.hook_post", shuffles=1)
    assert found.accuracy.shape == (1, 1, 1)


def test_a_run_brings_its_untrained_members(tmp_path):
    recipe = al.Recipe(data=al.FixedSample(size=50), duration=2, batch=10, optimiser=al.AdamW(learning_rate=0.1))
    model = al.DecoderSpec(layers=1, heads=1, width=8, head_width=8, hidden=8)
    run = al.train("anchor/identity", model, recipe, seeds=range(2), store=al.Store(tmp_path))
    batch = al.task("anchor/identity").sample("train", 40, seed=0)
    labels = batch.latents["anchor_positions"][:, 0] % 2
    found = probe(run, batch.inputs, labels, shuffles=1)
    before = probe(run.experiment.initial_ensemble(), batch.inputs, labels, shuffles=1)
    assert torch.equal(found.untrained, before.accuracy) and before.untrained is None
    assert not torch.equal(found.untrained, found.accuracy)


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (KEYS.float(), {}, r"labels: are numbers .* give integers, \[120\] or \[120, 9\]"),
        (["good", "bad"] * 60, {}, r"labels: are no integers; number them, \[120\] or \[120, 9\]"),
        (KEYS[:7], {}, r"labels: are labels of shape \(7,\)"),
        (torch.zeros_like(KEYS), {}, "labels: are all the same; give at least two"),
        (KEYS, {"folds": 121}, r"folds: 121 do not divide 120 sequences; give one of 2..120"),
        (KEYS, {"held_out": "positions"}, r"held_out: labels of whole sequences .*; hold out sequences"),
        (KEYS, {"shrinkage": 0}, "shrinkage: 0 is out of range"),
        # one-hot values have a covariance without an inverse
        (KEYS, {"shrinkage": 1e-30}, "shrinkage: 1e-30 leaves a covariance that rounding makes singular; give"),
        (KEYS, {"site": "blocks.**"}, r"site: blocks.0.hook_resid_pre has 9 positions, and blocks.0.* has 1; name"),
        (KEYS, {"shuffles": 0}, "shuffles: 0 leave no control"),
    ],
)
def test_errors_name_the_remedy(solver, labels, options, message):
    with pytest.raises(SpecError, match=message):
        probe(solver, INPUTS, labels, **options)


def test_a_member_that_diverged_has_no_accuracy_and_spoils_no_other():
    diverged = identity_solver()
    with torch.no_grad():
        dict(diverged.named_parameters())["embed.W_E"].fill_(torch.nan)
    found = probe(stacked(diverged, identity_solver()), INPUTS, KEYS, shuffles=2)
    assert found.accuracy[0].isnan().all() and found.shuffled[:, 0].isnan().all()
    assert (found.accuracy[1, 1, -1] == 1) and found.shuffled[:, 1].isfinite().all()
