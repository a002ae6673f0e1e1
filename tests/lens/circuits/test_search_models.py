"""Circuits of a model without a causal mask, and of trained models, where every path counts."""

import pytest
import torch
from torch import Tensor, nn

import anchorlab as al
from anchorlab.errors import SpecError
from anchorlab.lens import AttentionRule, Explanation, find_circuit
from anchorlab.lens.circuits import AttentionLosses, rule_cells
from anchorlab.models import DecoderSpec
from anchorlab.rng import child_seed
from anchorlab.runs import Store
from anchorlab.tasks import Scoring, task
from tests.lens import hand_built
from tests.lens.circuits import test_search
from tests.lens.circuits.test_search import ASK, IDENTITY, JOIN, check_every_path_is_needed, louder, search_batch
from tests.lens.hand_built import BROUGHT, HEADS, LENGTH, POSITION, PREDICTED, TOKEN, VOCABULARY, carrying, matching


def looking_ahead() -> nn.Module:
    """A solver without a mask: the anchor looks at the next position, which is its key, and all read the anchor."""
    module, further = hand_built.blank(layers=2), torch.eye(LENGTH).roll(-1, dims=1)
    further[0] = 0  # the first position is nobody's next, so that the last looks everywhere alike
    matching(module, 0, 0, hand_built.reading(POSITION), hand_built.reading(POSITION, further))
    carrying(module, 0, 0, TOKEN, BROUGHT)
    matching(module, 1, 0, hand_built.everywhere(), hand_built.where(TOKEN, hand_built.ANCHOR))
    carrying(module, 1, 0, BROUGHT, PREDICTED)
    plain = {"layer_norm": False, "feed_forward": False, "mask": False}
    unmasked = DecoderSpec(
        layers=2, heads=HEADS, width=PREDICTED.stop, head_width=hand_built.HEAD_WIDTH, **plain
    ).build(hand_built.SHAPE)
    unmasked.load_state_dict(louder(module).state_dict())
    return unmasked


AHEAD, READ = AttentionRule("anchor 1", "key 1"), AttentionRule("asked", "anchor 1")


@pytest.mark.parametrize("asked", [LENGTH - 1, 0])
def test_the_circuit_of_a_model_without_a_mask(asked):
    """It is told by keys that stand ahead of their queries; what no path speaks of looks at all n positions alike.

    So every loss follows from how often each token stands in the sequence: a logit is 9 times what reaches the answer.
    """
    one, module = IDENTITY.model_copy(update={"scoring": Scoring(positions=(asked,))}), looking_ahead()
    assert (
        not search_batch(module, one, 64).causal
        and search_batch(louder(hand_built.identity_solver()), IDENTITY, 64).causal
    )
    found = find_circuit(module, one, sequences=64)
    rules = {(layer, head): () for layer in range(2) for head in range(HEADS)} | {(0, 0): (AHEAD,), (1, 0): (READ,)}
    assert found.explanations == {head: Explanation("uniform", chosen) for head, chosen in rules.items()}
    assert not found.causal
    check_every_path_is_needed(found, search_batch(module, one, 64))

    batch = one.sample("test", 64, child_seed(0, "fresh"))
    assert batch.positions.tolist() == [asked]
    tokens = nn.functional.one_hot(batch.inputs, VOCABULARY).float()
    every, first, key = tokens.sum(dim=1), tokens[:, 0], tokens[torch.arange(64), batch.latents["key_positions"][:, 0]]

    def loss(reaches: Tensor) -> float:
        return float(nn.functional.cross_entropy(9 * reaches, batch.answers[:, 0]))

    mean = every / LENGTH
    for own in (found.model_loss, found.loss, found.live_loss):
        assert own == pytest.approx(loss(key), rel=1e-4)
    assert found.empty_loss == pytest.approx(loss(mean), rel=1e-4)  # the mean of means
    # the anchor and the last position hold the mean, each other one the next token, and all are read
    assert found.rest_loss == pytest.approx(loss((every - first - key + 2 * mean) / LENGTH), rel=1e-4)
    # the anchor holds the mean instead of the key; all are read, of which the anchor holds the key, the others the mean
    for path, reaches in zip(found.paths, (mean, (key + (LENGTH - 1) * mean) / LENGTH), strict=True):
        assert path.attention == pytest.approx(1)
        assert path.cut_loss == pytest.approx(loss(reaches), rel=1e-4) == path.mapped_cut_loss


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("rest", "read"), [("uniform", 1 / LENGTH), ("itself", 0), ("nothing", 0)])
def test_rests_without_a_mask(rest, read, live):
    """Of a head that reads the anchor, one n-th is left where it looks at all positions, ahead of the query as well."""
    one = IDENTITY.model_copy(update={"scoring": Scoring(positions=(0,))})
    search = search_batch(looking_ahead(), one, 64)
    later = search.batch.latents["anchor_positions"][:, 0] > 0  # at 0 the query is the anchor itself
    assert bool(later.any())
    elsewhere = Explanation(rest, (AttentionRule("key 1", 0),))
    found = search.outputs({(0, 0): Explanation("nothing", (AHEAD,)), (1, 0): elsewhere}, live)
    expected = 9 * read * nn.functional.one_hot(search.batch.answers, VOCABULARY).float()
    assert torch.allclose(found[later], expected[later], atol=1e-5)


# Circuits of trained models, where every path counts.
@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    recipe = al.Recipe(
        data=al.FixedSample(size=2000),
        optimiser=al.AdamW(learning_rate=3e-3),
        batch=100,
        duration=300,
        evaluation=al.Evaluation(every=300, size=50),  # seldom: it takes as long as the training
    )
    spec = DecoderSpec(layers=2, heads=1, width=32, head_width=32)
    small = task("anchor/identity", items=(20, 60), size=61)
    return al.train(small, spec, recipe, seeds=(1, 2), workers=1, store=Store(tmp_path_factory.mktemp("store")))


@pytest.mark.slow
@pytest.mark.parametrize("member", [0, 1])
def test_a_trained_model_joins_the_key_with_its_anchor_and_reads_it(trained, member):
    one, model = trained.experiment.task, trained.ensemble()
    found = find_circuit(model, one, member=member, sequences=128)
    assert found.heads == ((0, 0), (1, 0)) and found.unexplained == ()
    assert (1, 0, ASK) in test_search.paths_of(found)
    batch = one.sample("test", 50, 0)
    roles, length = one.roles(batch), one.shape.length
    joined = rule_cells(JOIN, roles, length)
    first = [rule_cells(path.rule, roles, length, batch.inputs) for path in found.paths if path.layer == 0]
    assert bool((torch.stack(first).any(dim=0) | ~joined).all())  # by role, or as a shift of all
    assert found.loss < found.model_loss + 0.04
    assert found.empty_loss > 20 * (found.model_loss + 0.04) and found.minimality > 20
    search = one.sample("test", 128, child_seed(0, "search"))
    check_every_path_is_needed(found, AttentionLosses(model.select([member]), one, search))


@pytest.mark.slow
def test_a_run_knows_the_task_that_it_learned(trained):
    one = trained.experiment.task
    assert find_circuit(trained, sequences=32) == find_circuit(trained.ensemble(), one, sequences=32)
    remedy = r"leave it out, or give run\.ensemble\(\) to explain the model on another task"
    other = task("anchor/two-distances", items=(20, 60), size=61)
    assert other.shape == one.shape  # so the model could read it
    with pytest.raises(
        SpecError, match=rf"^task: is anchor/two-distances, and the run learned anchor/identity; {remedy}$"
    ):
        find_circuit(trained, other)
    with pytest.raises(SpecError, match="the run learned anchor/identity with other settings; leave"):
        find_circuit(trained, task("anchor/identity", items=(20, 59), size=61))
    with pytest.raises(SpecError, match=r"^task: is missing; give the task that the model was trained on$"):
        find_circuit(trained.ensemble())
