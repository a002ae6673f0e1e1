"""Tiny experiments that are trained as one ensemble: which ones, and that each ends as it does at its place alone."""

import warnings
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from anchorlab.models.edits import Truncate
from anchorlab.training import SGD, Adam, AdamW, Evaluation, Experiment, FixedSample, Members, Stop, Times, fit
from anchorlab.training.cost import LEAST_MAPPED, is_tiny
from anchorlab.training.evaluation import Row
from anchorlab.training.joined import JoinedKeeper, Joint, Places, fit_joined, join, joints, share_a_pass
from anchorlab.training.trainer import TrainingState
from tests.small_experiments import KINDS, SAMPLE, STREAM, train_plainly, worst

TINY = SAMPLE.replace(
    data=FixedSample(size=8), batch=4, precision="float32", evaluation=Evaluation(every=10, size=8), duration=20
)
OURS = [kind for kind in KINDS if not kind.startswith("own")]


def varied(kind="associative", recipe=TINY):
    """Eleven members in five experiments, which differ in everything that members may differ in."""
    task, model = KINDS[kind]

    def one(members, **changes):
        optimiser = AdamW(**changes) if changes else recipe.optimiser
        return Experiment(task, model, recipe.replace(optimiser=optimiser), members)

    return [
        one(Members(seeds=(0, 1, 2))),
        one(Members(seeds=(0, 1)), learning_rate=2e-3, weight_decay=0.0),
        one(Members(seeds=(0, 1), learning_rate=(1e-2, 1e-3))),
        one(Members(seeds=(5, 6), initialisation_scale=(0.5, 2.0), weight_decay=(0.3, 0.0))),
        one(Members(seeds=(0, 1), clip=(0.1, 100.0))),
    ]


def together(experiments, most=64):
    """The experiments of each joint, and whether it is mapped."""
    found = list(joints(experiments, lambda one: most))
    return [joint.experiments for joint in found], [joint.mapped for joint in found]


class Kept:
    """A keeper that remembers."""

    def __init__(self):
        self.state, self.checkpoints = None, {}

    def load(self):
        return self.state

    def keep(self, state):
        self.state = state

    def checkpoint(self, step, weights):
        self.checkpoints[step] = {name: value.clone() for name, value in weights.items()}


def train_at(parts, places):
    """The rows and the last weights of each experiment, trained together at these places."""
    keepers = [Kept() for _ in parts]
    rows = fit_joined(parts, places, keepers, [None] * len(parts), partial(fit, execution="mapped"))
    return [(each, one.checkpoints[max(one.checkpoints)]) for each, one in zip(rows, keepers, strict=True)]


def check_bytes(parts):
    """Each has at its place the weights and rows that it has there beside nobody, or beside the last."""
    places = Joint(parts, mapped=True).places
    together = train_at(parts, places)
    assert all(weights for _, weights in together)
    for indices in [*([index] for index in range(len(parts))), [0, len(parts) - 1]]:
        found = train_at([parts[index] for index in indices], [places[index] for index in indices])
        for (rows, weights), (all_rows, all_weights) in zip(found, (together[i] for i in indices), strict=True):
            assert rows == all_rows
            assert all(torch.equal(value, all_weights[name]) for name, value in weights.items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        pytest.param(kind, recipe.data, id=f"{kind}-{name}", marks=() if kind in either else pytest.mark.nightly)
        for name, recipe, either in (
            ("sample", SAMPLE, ("decoder", "recall", "lstm")),
            ("stream", STREAM, ("decoder, modern", "vectors", "associative")),
        )
        for kind in OURS
    ],
)
@pytest.mark.equal_bytes
def test_each_ends_with_the_bytes_that_it_has_at_its_place_alone(kind, data):
    """In float32, where another order of the same sums would show."""
    parts = varied(kind, TINY.replace(data=data, batch=8, duration=12))
    check_bytes(parts)


@contextmanager
def products_that_look_at_their_neighbours():
    """Inside, a product depends on how many are computed together and on its place there, as with some libraries."""
    called = []

    def bmm(left, right):
        called.append(len(left))
        products = torch.stack([a @ b for a, b in zip(left, right, strict=True)])
        places = torch.arange(len(left), dtype=torch.float64).view(-1, 1, 1)
        return (products * (1 + 1e-5 * torch.sin(3.0 * len(left) + places))).to(left.dtype)

    with torch.library._scoped_library("aten", "IMPL") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its own product is replaced
        library.impl("bmm", bmm, "CPU")
        yield
    assert called


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["decoder", "fnn"])
@pytest.mark.equal_bytes
def test_no_choice_of_a_library_changes_the_bytes(kind):
    parts = varied(kind)
    with products_that_look_at_their_neighbours():
        check_bytes(parts)
        elsewhere = [train_at(parts[:1], [place])[0][1] for place in (Places(0, 11), Places(1, 11), Places(0, 10))]
    for other in elsewhere[1:]:
        assert any(not torch.equal(value, other[name]) for name, value in elsewhere[0].items())


CUT = {"cut": (Truncate(weight="blocks.0.mlp.W_in", fraction=0.5),)}
RECIPES = {
    "adam": {"optimiser": Adam(weight_decay=0.1)},
    "momentum": {"optimiser": SGD(momentum=0.9, weight_decay=0.1)},
    "no clipping": {"clip": None},
    "bfloat16": {"precision": "bfloat16"},
    "edits": {"evaluation": Evaluation(every=10, size=8, edits=CUT)},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.equal_bytes
def test_every_recipe_gives_each_the_bytes_that_it_has_at_its_place_alone(name):
    """Only one of them decays its weights."""
    recipe = TINY.replace(**RECIPES[name])
    parts = [
        Experiment(*KINDS["decoder"], recipe, Members(seeds=(0, 1), learning_rate=(rate, 2 * rate), weight_decay=decay))
        for rate, decay in ((1e-3, (0.0, 0.0)), (4e-3, (0.1, 0.2)))
    ]
    check_bytes(parts)


def test_each_ends_as_a_plain_loop_does():
    """At places that leave two free before it, between them and behind."""
    parts = varied(recipe=TINY.replace(precision="float64"))
    starts = (2, 7, 9, 11, 15)
    for one, (rows, weights) in zip(parts, train_at(parts, [Places(start, 19) for start in starts]), strict=True):
        assert [row.member for row in rows] == [row.member for row in fit(one).rows]
        assert [row.value for row in rows] == pytest.approx([row.value for row in fit(one).rows], rel=1e-9)
        for index in range(len(one.members)):
            member = {name: value[index] for name, value in weights.items()}
            assert worst(member, train_plainly(one, index)) < 1e-10


def test_free_places_repeat_the_first_member_and_places_follow_one_another():
    one = varied()[0]
    assert join([one], [Places(2, 9)]).members.seeds == (0, 0, 0, 1, 2, 0, 0, 0, 0)
    keeper = JoinedKeeper([Kept()], [one], [Places(2, 9)], [None])
    assert sorted(keeper.idle) == [0, 1, 5, 6, 7, 8]
    parts = varied()
    assert Joint(parts, True).places == [(0, 11), (3, 11), (5, 11), (7, 11), (9, 11)]
    assert Joint(parts[:1], True).places == [None]


@pytest.mark.parametrize(
    ("other", "fit_together"),
    [((3, 9), True), ((2, 9), False), ((4, 9), True), ((3, 10), False), ((0, 9), False), ((5, 9), True)],
)
def test_members_fit_into_a_pass_at_places_that_are_free(other, fit_together):
    """Three members at the places 0, 1 and 2 of nine, beside two others."""
    assert share_a_pass(Places(0, 9), 3, Places(*other), 2) is fit_together
    assert share_a_pass(Places(*other), 2, Places(0, 9), 3) is fit_together


def test_joined_are_those_that_differ_only_in_numbers_of_their_members():
    parts = varied()
    assert together(parts) == ([parts], [True])
    task, model = KINDS["associative"]
    members = Members(seeds=tuple(range(20, 40)))
    alone = [
        Experiment(KINDS["decoder"][0], KINDS["decoder"][1], TINY, members),
        Experiment(task, model.replace(width=7), TINY, members),
        Experiment(task.replace(alpha=0.2), model, TINY, members),
        Experiment(task, model, TINY, members.replace(hold={"data": 3})),
        Experiment(task, model, TINY, members.replace(gamma={}, data_size=(4,) * 20)),
        *(
            Experiment(task, model, TINY.replace(**changes), members)
            for changes in (
                {"duration": 21}, {"clip": None}, {"optimiser": SGD()}, {"optimiser": AdamW(betas=(0.8, 0.99))},
                {"checkpoints": Times(every=5)}, {"evaluation": Evaluation(every=5, size=8)},
            )
        ),
    ]  # fmt: skip
    found, mapped = together([*parts, *alone])
    assert parts in found
    assert all(mapped)
    assert [one for one in found if one != parts] == [[one] for one in alone]


def test_what_cannot_be_joined_stays_by_itself():
    task, model = KINDS["associative"]
    many = [Members(seeds=tuple(range(start, start + 8))) for start in (0, 8)]
    own, decoder = KINDS["own module with tied weights"], KINDS["decoder"]
    pairs = {
        "of another's module": [Experiment(*own, TINY, members) for members in many],
        "not tiny": [Experiment(decoder[0], decoder[1].replace(width=512), SAMPLE, members) for members in many],
        "a stop rule": [
            Experiment(task, model, TINY.replace(stop=Stop(metric="loss", split="train", value=1.0)), members)
            for members in many
        ],
        "untrained": [Experiment(task, model, TINY, members).untrained() for members in many],
        "a start": [
            Experiment(task, model, TINY, members, start=Experiment(task, model, TINY, members)) for members in many
        ],
        "too few": [Experiment(task, model, TINY, Members(seeds=(seed,))) for seed in range(LEAST_MAPPED - 1)],
    }
    assert is_tiny(pairs["of another's module"][0]) and not is_tiny(pairs["not tiny"][0])
    for why, experiments in pairs.items():
        assert together(experiments) == ([[one] for one in experiments], [False] * len(experiments)), why


def test_joints_have_no_more_members_than_they_may():
    task, model = KINDS["associative"]
    six = [Experiment(task, model, TINY, Members(seeds=tuple(range(4 * n, 4 * n + 4)))) for n in range(6)]
    assert together(six, most=8) == ([six[:2], six[2:4], six[4:]], [True] * 3)
    assert together(six, most=23) == ([six[:5], six[5:]], [True] * 2)


def test_how_large_joints_may_be_does_not_decide_which_are_mapped():
    """Members that are mapped have other last bits: they must not depend on the number of workers."""
    task, model = KINDS["associative"]
    three = [Experiment(task, model, TINY, Members(seeds=tuple(range(3 * n, 3 * n + 3)))) for n in range(3)]
    assert together(three, most=9) == ([three], [True])
    assert together(three, most=6) == ([three[:2], three[2:]], [True, True])
    assert together(three, most=1) == ([[one] for one in three], [True] * 3)
    assert together(three[:2]) == ([[one] for one in three[:2]], [False] * 2)


def test_what_is_kept_of_each_is_its_own_part():
    """A state of all, whose numbers are written by hand, so that a wrong cut shows; two places are free."""
    parts, places = varied()[:2], [Places(1, 7), Places(4, 7)]
    keepers = [Kept(), Kept()]
    joined = JoinedKeeper(keepers, parts, places, [None, None])
    assert joined.load() is None
    rows = tuple(
        Row(member, seed, 0, "test", "all", "none", "loss", seed / 2) for member, seed in enumerate((5, 6, 7, 8, 9), 1)
    )
    state = TrainingState(
        7, {"weights.a": torch.arange(7.0), "optimiser.b": torch.eye(7)}, rows, frozenset({0, 6}), "mapped"
    )
    joined.keep(state)
    assert [one.state.tensors["weights.a"].tolist() for one in keepers] == [[1, 2, 3], [4, 5]]
    assert torch.equal(keepers[1].state.tensors["optimiser.b"], torch.eye(7)[4:6])
    assert [[(row.member, row.seed) for row in one.state.rows] for one in keepers] == [
        [(0, 5), (1, 6), (2, 7)],
        [(0, 8), (1, 9)],
    ]
    assert [one.state.resting for one in keepers] == [frozenset()] * 2
    again = JoinedKeeper(keepers, parts, places, [one.state for one in keepers]).load()
    assert (again.step, again.execution, again.rows) == (7, "mapped", rows)
    assert again.tensors["weights.a"].tolist() == [1, 1, 2, 3, 4, 5, 1]
    joined.checkpoint(9, {"a": torch.arange(7)})
    assert [one.checkpoints[9]["a"].tolist() for one in keepers] == [[1, 2, 3], [4, 5]]


@pytest.mark.equal_bytes
def test_samples_of_other_sizes_change_nothing():
    """One is smaller than the evaluation, another larger."""
    task, model = KINDS["decoder"]
    check_bytes([Experiment(task, model, TINY, Members(seeds=(0, 1), data_size=sizes)) for sizes in ((4, 4), (8, 40))])
