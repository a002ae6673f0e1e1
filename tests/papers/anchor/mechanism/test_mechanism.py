"""What the parts of a two-layer model do, on weights and numbers made by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorlab.lens import look
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.mechanism.broadcast import AnchorMaps, SecondAttention, directions_figure, read_directions
from anchorlab.papers.anchor.mechanism.feed_forward import (
    ADDED,
    INPUTS,
    STAGES,
    STREAM,
    SUM,
    Stages,
    feed_forward_stages,
    follow_stages,
    share_of_first,
    spread_and_distance,
)
from anchorlab.papers.anchor.mechanism.mechanism import QUICK, STUDY, Mechanism, experiments
from anchorlab.papers.anchor.mechanism.outputs import LastRow, Projection, project_others, share_greater
from anchorlab.papers.anchor.mechanism.rows import MIDDLE, key_positions, split_similarity
from anchorlab.papers.anchor.mechanism.shift import FirstAttention, first_attention
from anchorlab.tasks import task
from anchorlab.training import Members
from anchorlab.training.ensemble import initialise
from tests.papers.hand_made_models import blank
from tests.papers.hand_made_runs import run_ending, seen_by_hand, values_of

SHARP = 60.0
MODEL = DecoderSpec(layers=2, heads=1, width=16, head_width=16)


@pytest.fixture(scope="module")
def identity():
    return task("anchor/identity")


@pytest.fixture(scope="module")
def batch(identity):
    return identity.sample("test", 40, seed=0)


@pytest.fixture
def ensemble(identity):
    """Two untrained members of two layers of one head, for one test to write into."""
    return initialise(MODEL, identity.shape, [Members(seeds=(seed,)).stream("initialisation", 0) for seed in range(2)])


def test_the_stages_are_what_the_model_itself_computes(ensemble, batch):
    drawn = torch.Generator().manual_seed(0)
    for part in "wb":  # which are 1 and 0 at first
        ensemble.weights[f"blocks.0.ln2.{part}"].normal_(generator=drawn)
    sites = ["ln1.hook_normalized", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out", "hook_resid_post"]
    names = [f"blocks.0.{site}" for site in (*sites, "ln2.hook_normalized")]
    record = look(ensemble, batch.inputs, record=names)
    stages = feed_forward_stages(ensemble.weights, 0, record[names[0]])
    assert len(stages) == len(STAGES) == 6
    for name, stage in zip(names, stages, strict=True):
        torch.testing.assert_close(stage, record[name], rtol=1e-5, atol=1e-5)


def of_positions(ensemble):
    """Queries and keys that read positions alone: position i asks for i - 1."""
    weights = ensemble.weights
    directions = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(0)))[0]
    weights["pos_embed.W_pos"][:] = directions[:9] * SHARP
    weights["embed.W_E"][:] = 0
    weights["blocks.0.attn.W_Q"][:] = torch.eye(16)
    # the key of i is the direction of i + 1
    weights["blocks.0.attn.W_K"][:] = directions.T @ directions.roll(-1, dims=0)
    return ensemble


def test_a_head_of_positions_alone_is_found_to_be_one(ensemble, batch):
    found = first_attention(of_positions(ensemble), batch)
    assert found.matched.tolist() == [1.0, 1.0]
    assert found.positions_apart.tolist() == pytest.approx([0.0, 0.0], abs=1e-5)
    assert found.shifted_agrees.tolist() == [1.0, 1.0]
    # Tokens alone give no scores, so that row i is even over i + 1 positions: 1 - 1 / (i + 1) from the shift.
    expected = sum(1 - 1 / (row + 1) for row in range(1, 9)) / 8
    assert found.tokens_apart.tolist() == pytest.approx([expected] * 2, abs=1e-5)


def test_a_head_of_tokens_alone_is_found_to_be_one(ensemble, batch):
    ensemble.weights["pos_embed.W_pos"][:] = 0
    found = first_attention(ensemble, batch)
    assert found.tokens_apart.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert (found.positions_apart > 0.01).all()


def test_similarities_spreads_and_distances_are_split_by_the_key():
    # Four positions, the key at 2 (and at 0). First two of the others are parallel, the third is orthogonal to them and
    # along the key, then all are parallel and opposite to the key: of six pairs four have a cosine of 1, of six with
    # the key one has 1 and three -1.
    rows = torch.tensor([[[1.0, 0], [2, 0], [0, 3], [0, 1]], [[-1, 0], [1, 0], [1, 0], [5, 0]]])[None]
    similarity = torch.nn.functional.cosine_similarity(rows.unsqueeze(3), rows.unsqueeze(2), dim=-1)
    others, key = split_similarity(similarity, torch.tensor([2, 0]))
    assert others.tolist() == [pytest.approx(4 / 6)]
    assert key.tolist() == [pytest.approx(-2 / 6)]
    # The others at 1 and -1, their centre at 0; the key 3 away.
    rows = torch.tensor([[[1.0, 0], [0, 3], [-1, 0]]])[None]
    spread, distance = spread_and_distance(rows, torch.tensor([1]))
    assert spread.tolist() == [pytest.approx(1.0)]
    assert distance.tolist() == [pytest.approx(3.0)]


def test_the_matrices_of_equation_8_show_every_statement_and_others_do_not():
    # Q has rows alpha and, at the key, beta; K has their opposites; alpha beta > 0 and alpha is the longer.
    alpha, beta = torch.tensor([4.0, 0.0]), torch.tensor([0.5, 1.0])
    queries = alpha.repeat(1, 2, 9, 1)
    at = torch.tensor([5, 3])
    queries[0, torch.arange(2), at] = beta
    found = read_directions(queries, -queries, at)
    assert found.queries.tolist() == found.keys.tolist() == [pytest.approx(1.0)]
    assert found.opposite.tolist() == [pytest.approx(-1.0)]
    assert found.same_side.tolist() == [1.0]
    assert found.longer.tolist() == [pytest.approx(4 / 1.25**0.5)]
    assert found.key_alike.tolist() == [pytest.approx(-1.0)]
    assert found.key_apart.tolist() == [pytest.approx(0.5 / 1.25**0.5)]  # beta against alpha
    keys = -queries
    keys[0, torch.arange(2), at] = torch.tensor([0.0, 2.0])  # along (0, 1), and orthogonal to the other keys
    found = read_directions(queries, keys, at)
    assert found.key_alike.tolist() == [pytest.approx(1 / 1.25**0.5)]
    assert found.key_apart.tolist() == [pytest.approx(0.5 / 1.25**0.5 / 2)]
    # Scores: -16 among the others and -2 in the key's column; in the key's own row -2 and -1.25.
    assert found.to_key.tolist() == [1.0]
    queries = torch.ones(1, 1, 9, 2)
    keys = torch.ones(1, 1, 9, 2)
    keys[0, 0, 0] = 5  # every row's greatest score is the first column's
    assert read_directions(queries, keys, torch.tensor([4])).to_key.tolist() == [0.0]
    queries = torch.ones(1, 1, 9, 2)
    queries[0, 0, 4] = -20  # all nine together are on its side
    assert read_directions(queries, queries, torch.tensor([4])).same_side.tolist() == [0.0]


def test_an_even_projection_makes_no_choice(ensemble, batch):
    ensemble.weights["unembed.W_U"][:] = 0
    ensemble.weights["unembed.b_U"][:] = 0
    found = project_others(ensemble, batch)
    assert found.favour.tolist() == pytest.approx([0.5, 0.5])
    assert found.evenness.tolist() == pytest.approx([1.0, 1.0], rel=1e-5)
    ensemble.weights["unembed.b_U"][:, 30] = 10  # one item takes e^10 times as much as every other token
    found = project_others(ensemble, batch)
    assert found.favour.tolist() == pytest.approx([(1 + 80 / 2) / 81] * 2)  # one item above all, and equal ones half
    assert (found.evenness < 0.02).all()
    assert found.probabilities.argmax(dim=-1).tolist() == [30, 30]


def test_the_stages_follow_each_input(ensemble, batch):
    sites = {
        STREAM: "blocks.0.hook_resid_pre", ADDED: "blocks.0.hook_attn_out", SUM: "blocks.0.hook_resid_mid",
    }  # fmt: skip
    record = look(ensemble, batch.inputs, record=list(sites.values()))
    found = follow_stages(ensemble, batch)
    place = key_positions(batch) == MIDDLE
    assert place.any()
    for name, site in sites.items():
        rows = record[site]
        cosine = torch.nn.functional.cosine_similarity(rows.unsqueeze(3), rows.unsqueeze(2), dim=-1)
        torch.testing.assert_close(found[name].similarity[:, 0], cosine[:, place].mean(dim=1), rtol=1e-4, atol=1e-4)


def test_norms_are_those_of_the_second_linear_map(ensemble, batch):
    """A network that doubles positive numbers and drops the others: its norms are known without it."""
    ensemble.weights["blocks.0.mlp.W_in"][:] = torch.eye(16, 48)
    ensemble.weights["blocks.0.mlp.W_out"][:] = 2 * torch.eye(48, 16)
    record = look(ensemble, batch.inputs, record=["blocks.0.hook_resid_pre", "blocks.0.hook_attn_out"])
    found = follow_stages(ensemble, batch)
    for name, site in ((STREAM, "blocks.0.hook_resid_pre"), (ADDED, "blocks.0.hook_attn_out")):
        norms = 2 * record[site].clamp(min=0).norm(dim=-1)  # [member batch position]
        torch.testing.assert_close(found[name].norm, norms.mean(dim=(1, 2)))
        torch.testing.assert_close(found[name].norms, norms[:, key_positions(batch) == MIDDLE].mean(dim=1))


def test_the_share_of_the_part_that_changes_more_and_of_pairs_with_a_greater_value():
    # Without the first part 0.8 falls by 0.6, without the second by 0.2; then none changes anything; then only one.
    whole, without_first, without_second = torch.tensor([[0.8, 0.5, 0.5, 0.5], [0.2, 0.5, 0.9, 0.5], [1, 0.5, 0.5, 0]])
    found = share_of_first(whole, without_first, without_second)
    assert found.tolist() == pytest.approx([0.75, 0.5, 1.0, 0.0])
    left, right = torch.tensor([[0.3, 0.5], [0.1, 0.1]]), torch.tensor([[0.1, 0.3, 0.4, 0.6], [0.1, 0.1, 0.2, 0.0]])
    assert share_greater(left, right).tolist() == pytest.approx([(1.5 + 3) / 8, (2 + 2) / 8])


def seen(**changes):
    """Two members; what no claim reads is 9. Every claim of the paper holds unless changed."""
    values = {
        "accuracy": [0.96, 1.0],
        "positions_apart": [0.1, 0.3],
        "tokens_apart": [0.5, 0.5],
        "matched": [0.7, 1.0],
        "shifted_agrees": [0.94, 1.0],
        "unnormalised_agrees": [0.95, 0.99],
        "norm": ([2.0, 4.0], [2.0, 8.0]),  # of X(1), and of Xpr
        "others": ([0.5, 0.6], [0.8, 0.9]),  # at the input, and after the last stage
        "key": [-0.16, 0.27],
        "others_alone": ([0.2, 0.3], [0.7, 0.9]),  # after the last stage: of X(1), and of Xpr
        "key_alone": ([0.1, -0.3], [-0.16, 0.17]),
        "spread": ([2.0, 4.0], [1.0, 3.0]),  # of X(1), and of the sum
        "distance": ([1.0, 2.0], [1.5, 3.5]),
        "to_key": [0.9, 0.94],
        "queries": [0.9, 0.94],
        "keys": [0.94, 1.0],
        "opposite": [-0.4, -0.8],
        "same_side": [0.85, 0.99],
        "longer": [0.8, 1.4],
        "key_alike": [-0.3, 0.9],
        "key_apart": [0.1, 0.2],
        "explained": [0.4, 0.8],
        "own_apart": [0.3, 0.1],
        "other_apart": [0.4, 0.5],
        "favour": [0.92, 1.0],
        "evenness": [0.88, 0.98],
        "made": [0.94, 0.98],
        "without_key": [0.02, 0.1],
    } | changes
    one = torch.tensor

    def along(first, last):
        return torch.stack([one(first), *[torch.full((2,), 9.0)] * 4, one(last)], dim=1)

    none, rows, places = torch.full((2, 6, 9, 9), 9.0), torch.full((2, 1, 9, 1), 9.0), torch.full((2, 9), 9.0)
    nine = [9.0, 9.0]

    def stage(others, key, norm=nine, spread=nine, distance=nine):
        directions = along(*others), along(nine, key)
        return Stages(none, *directions, places, one(norm), rows, one(spread), one(distance))

    alone = zip(*(values[name] for name in ("others_alone", "key_alone", "norm")), strict=True)
    (of_stream, stream_key, stream_norm), (of_added, added_key, added_norm) = alone
    sizes, sums = zip(*(values[name] for name in SIZES), strict=True)
    stages = {
        STREAM: stage((nine, of_stream), stream_key, stream_norm, *sizes),
        ADDED: stage((nine, of_added), added_key, added_norm),
        SUM: stage(values["others"], values["key"], nine, *sums),
    }

    def part(kind, *names, **others):
        return kind(**{name: one(values[name]) for name in names}, **others)

    first = ("positions_apart", "tokens_apart", "matched", "shifted_agrees", "unnormalised_agrees")
    directions = ("to_key", "queries", "keys", "opposite", "same_side", "longer", "key_alike", "key_apart")
    maps = torch.full((2, 2, 9, 9), 9.0)
    return seen_by_hand(
        Mechanism,
        accuracy=one(values["accuracy"]),
        first_attention=part(FirstAttention, *first, queries_to_keys=torch.full((2, 9, 9), 9.0)),
        stages=stages,
        second_attention=part(SecondAttention, *directions),
        by_anchor=part(AnchorMaps, "explained", "own_apart", "other_apart", positions=torch.arange(2), maps=maps),
        projection=part(Projection, "favour", "evenness", probabilities=torch.full((2, 201), 9.0)),
        replaced_row=part(LastRow, "made", "without_key"),
    )


SIZES = ("spread", "distance")


def test_values_of_numbers_made_by_hand():
    assert values_of(STUDY, seen()) == {
        name: pytest.approx(value)
        for name, value in {
            "learned": 0.98,
            "positions": 0.2,
            "not-tokens": 0.3,
            "query-meets-key": 0.85,
            "exact-shift": 0.97,
            "no-norm": 0.97,
            "aligns": 0.85,
            "aligns-there": 0.3,
            "orthogonal": (0.16 / 0.8 + 0.27 / 0.9) / 2,
            "norms": (1 + 2) / 2,
            # Without Xpr 0.8 falls by 0.6 and 0.9 by 0.6, without X(1) by 0.1 and by nothing.
            "alignment-from-attention": (6 / 7 + 1) / 2,
            # 0.64 and 0.63 are 0.1 and 0 without Xpr, 0.54 and 0.73 without X(1).
            "orthogonality-from-attention": (54 / 64 + 63 / 73) / 2,
            "concentrates": (1 / 2 + 3 / 4) / 2,
            "moves-away": (1.5 + 1.75) / 2,
            "anchor-position": 0.6,
            "moves-with-anchor": (0.1 + 0.4) / 2,
            "reads-key": 0.92,
            "two-directions": (0.92 + 0.97) / 2,
            "opposite": -0.6,
            "key-alike": 0.3,
            "key-apart": 0.15,
            "same-side": 0.92,
            "longer": 1.1,
            "items": 0.96,
            "no-choice": 0.93,
            "last-row": 0.96,
            "answer-from-key": (0.92 + 0.88) / 2,
        }.items()
    }
    # one cosine is above zero and one below, both far from it: their mean of zero does not count
    assert values_of(STUDY, seen(key=[-0.5, 0.5]))["orthogonal"] == pytest.approx((0.5 / 0.8 + 0.5 / 0.9) / 2)


def test_queries_and_keys_lie_in_the_plane_of_their_main_components():
    """The first position's at 3 and -3 along one direction, the key's at 1 and -1 along another, of five."""
    queries, keys = torch.full((2, 9, 5), 7.0), torch.full((2, 9, 5), -7.0)  # rows of other positions are not drawn
    for rows, sign in ((queries, 1.0), (keys, -1.0)):
        rows[:, [0, MIDDLE]] = 0
        rows[:, 0, 1] = 3 * sign
        rows[:, MIDDLE, 4] = sign
    figure = directions_figure(1000, queries, keys)
    (points,) = figure.scatters
    assert figure.value_names == ("Q, first position", "Q, key", "K, first position", "K, key")
    assert points.values == (0, 0, 1, 1, 2, 2, 3, 3)
    turned = np.sign([points.x[0], points.y[2]])  # a direction may be drawn either way
    assert points.x == pytest.approx(turned[0] * np.array([3, 3, 0, 0, -3, -3, 0, 0]), abs=1e-5)
    assert points.y == pytest.approx(turned[1] * np.array([0, 0, 1, 1, 0, 0, -1, -1]), abs=1e-5)
    assert "100% of the variance" in figure.caption


def test_a_run_made_by_hand_is_read_at_its_end(ensemble):
    setting = replace(QUICK, seeds=2)
    trained = of_positions(ensemble)
    trained.weights["embed.W_E"][:] = 1e-6  # to be set to zero
    untrained = blank(MODEL, "anchor/identity", 2)
    run = run_ending(*experiments(setting).values(), (0.75, 1.0), (0.5, 0.5), {0: untrained, 600: trained})
    found = STUDY.see([run], setting)
    assert found.accuracy.tolist() == [0.75, 1.0]
    assert found.first_attention.matched.tolist() == found.first_attention.shifted_agrees.tolist() == [1.0, 1.0]
    made = STUDY.analysis([run], setting)
    numbers, stages = made.tables
    assert numbers.columns == ("seed", *(measure.name for measure in STUDY.claims))
    assert numbers.rows[1][:2] == (1001, 1.0)
    assert [one.title for row in made.figures[5].maps for one in row] == [f"anchor at {place}" for place in range(8)]
    assert [curve.label for curve in made.figures[3].lines] == ["FNN(X(1))", "FNN(Xpr)"]
    of_all = [made.figures[place] for place in (3, 8)]  # the others show the first seed
    assert [one.seeds for one in made.figures] == [None if one in of_all else "1000" for one in made.figures]
    assert made.figures[4].value_names == ("no", "yes")
    assert [one.title for one in made.figures[6].maps[0]] == ["scores", "pattern"]
    assert "(Fig 26)" in made.figures[7].title and len(made.figures[7].scatters[0].x) % 4 == 0
    torch.testing.assert_close(torch.tensor(made.figures[3].lines[1].mean), found.stages[ADDED].norms.mean(dim=0))
    assert [row[:2] for row in stages.rows] == [
        (name, pairs) for name in INPUTS for pairs in ("others", "key and others")
    ]
    whole, tokens, positions, cosines = made.figures[0].maps[0]
    assert whole.values[5][4] == positions.values[5][4] == pytest.approx(1.0)  # layer 0 shifts by one
    assert tokens.values[5][4] == pytest.approx(1 / 6)
    assert cosines.values[5][4] == pytest.approx(1.0)
