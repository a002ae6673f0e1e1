"""Wide layers of narrow heads compute queries, keys and values by one product: the same within rounding."""

import math

import pytest
import torch

from anchorlab.models import attention
from anchorlab.models.attention import Attention, affine, causal_mask, rotated, shifted
from anchorlab.models.sites import identity_tap

LENGTH, WIDTH, HEADS, HEAD_WIDTH = 5, 256, 2, 16
PLACES = torch.arange(LENGTH)
POSITIONS = {
    "everywhere": None,
    "at shared positions": torch.tensor([4, 1]),
    "at each sequence's own": torch.tensor([[4, 1], [0, 3], [2, 4]]),
}
FORMS = {
    "plain": {}, "biases": {"biases": True}, "rotary": {"rotary": True}, "shifted": {"shift_values": 1, "biases": True},
}  # fmt: skip


def layer(width=WIDTH, heads=HEADS, head_width=HEAD_WIDTH, **form):
    made = Attention("attn", width, heads, head_width, **form).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_(std=0.3, generator=generator)
    return made


def stream(width=WIDTH):
    return torch.randn(3, LENGTH, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def mask_of(positions):
    return causal_mask(PLACES if positions is None else positions, PLACES, torch.float64)


def read_by_queries(x, positions):
    """The stream at each query's position, and these positions, `[batch query]`."""
    places = (PLACES if positions is None else positions).expand(3, -1)
    return x.gather(1, places[..., None].expand(-1, -1, WIDTH)), places


def by_separate_products(made, x, positions):
    """The layer head by head, each with its own columns of three matrices."""
    read, places = read_by_queries(x, positions)
    out = []
    for head in range(HEADS):
        own = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
        q, k, v = (
            given @ getattr(made, f"W_{role}")[:, own]
            + (0 if getattr(made, f"b_{role}") is None else getattr(made, f"b_{role}")[own])
            for role, given in zip("QKV", (read, x, x), strict=True)
        )
        if made.shift_values:
            v = shifted(v.unsqueeze(2), made.shift_values).squeeze(2)
        if made.rotary:
            q, k = rotated(q.unsqueeze(2), places).squeeze(2), rotated(k.unsqueeze(2), PLACES).squeeze(2)
        scores = q @ k.mT / math.sqrt(HEAD_WIDTH)
        scores = scores.masked_fill(places.unsqueeze(-1) < PLACES, -math.inf)
        out.append(scores.softmax(dim=-1) @ v)
    z = torch.cat(out, dim=-1)
    return z @ made.W_O + (0 if made.b_O is None else made.b_O)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("form", FORMS)
def test_outputs_and_gradients_are_those_of_separate_products(form, positions):
    made, x, where = layer(**FORMS[form]), stream().requires_grad_(), POSITIONS[positions]
    found, expected = made(x, where, mask_of(where), identity_tap), by_separate_products(made, x, where)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    pull = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    weights = [x, *made.parameters()]
    for one, other in zip(
        torch.autograd.grad(found, weights, pull), torch.autograd.grad(expected, weights, pull), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("positions", POSITIONS)
def test_mapped_members_are_those_alone(positions):
    members, x, where = [layer(biases=True), layer(biases=True)], stream(), POSITIONS[positions]
    with torch.no_grad():
        for weight in members[1].parameters():
            weight.mul_(-0.5)
    stacked = torch.func.stack_module_state(members)[0]

    def loss(weights):
        given = (x, where, mask_of(where), identity_tap)
        return torch.func.functional_call(members[0], weights, given).sin().sum()

    mapped = torch.func.vmap(torch.func.grad(loss))(stacked)
    for index, member in enumerate(members):
        alone = torch.func.grad(loss)({name: weight.detach() for name, weight in member.named_parameters()})
        for name, gradient in alone.items():
            torch.testing.assert_close(mapped[name][index], gradient, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("biases", [False, True])
def test_products_are_joined_where_it_pays(biases, monkeypatch):
    def columns(made, positions=None):
        seen = []
        counted = lambda x, weight, bias=None: seen.append(weight.shape[1]) or affine(x, weight, bias)  # noqa: E731
        monkeypatch.setattr(attention, "affine", counted)
        made(stream(len(made.W_Q)), positions, None, identity_tap)
        return seen

    wide = layer(biases=biases)
    assert columns(wide) == [3 * 32, WIDTH]
    assert columns(wide, POSITIONS["at shared positions"]) == [32, 2 * 32, WIDTH]
    assert columns(layer(width=255, heads=1, biases=biases)) == [16, 16, 16, 255]
    assert columns(layer(heads=3, biases=biases)) == [48, 48, 48, WIDTH]  # 48 is more than an eighth of the width


@pytest.mark.parametrize("positions", POSITIONS)
def test_tapped_sites_are_separate_products_and_give_the_same_output(positions):
    made, x, where, seen = layer(), stream(), POSITIONS[positions], {}
    output = made(x, where, mask_of(where), lambda site, value: seen.setdefault(site, value))
    assert torch.equal(seen["attn.hook_q"].flatten(2), read_by_queries(x, where)[0] @ made.W_Q)
    assert torch.equal(seen["attn.hook_k"].flatten(2), x @ made.W_K)
    assert torch.equal(seen["attn.hook_v"].flatten(2), x @ made.W_V)
    untapped = made(x, where, mask_of(where), identity_tap)
    torch.testing.assert_close(untapped, output, rtol=1e-12, atol=1e-12)
