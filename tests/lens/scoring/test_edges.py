"""Edge attribution patching: exact on a linear model, equal to two references elsewhere, and integrated gradients."""

from importlib.metadata import PackageNotFoundError, version

import pytest
import torch

from anchorlab.interop import to_transformer_lens
from anchorlab.lens import score_edges, score_units
from tests.lens.hand_built import identity_solver, other_anchor, stacked
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, FORMS, Written, difference, drawn, edge_slopes, pairs

PAIRS = pairs()


def test_is_exact_on_a_linear_model():
    given = linear.CLEAN, linear.CORRUPTED, linear.RIGHT, linear.WRONG
    found = score_edges(linear.linear_members(), *given)
    assert len(found.edges) == 3 + 3 * 2 + 3
    for member, expected in enumerate(linear.effects()):
        assert len({round(value, 6) for value in expected.values()}) == 6  # no two edges alike
        for edge, value in zip(found.edges, found.edge_values[member].tolist(), strict=True):
            assert value == pytest.approx(expected.get(str(edge), 0.0), abs=1e-5), edge
    back = score_edges(linear.linear_members(), *given, into="corrupted")
    torch.testing.assert_close(back.edge_values, -found.edge_values, rtol=1e-5, atol=1e-5)  # linear: the same way back
    more = score_edges(linear.linear_members(), *given, steps=7)
    torch.testing.assert_close(
        more.edge_values, found.edge_values, rtol=1e-5, atol=1e-5
    )  # and the same gradient everywhere


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_equals_derivatives_of_a_decoder_written_out(form, steps):
    ensemble = drawn(FORMS[form])
    found = score_edges(ensemble, *PAIRS, steps=steps)
    edges = [(edge.sender, edge.receiver) for edge in found.edges]
    for member in range(2):
        expected = edge_slopes(ensemble, member, edges, steps)
        torch.testing.assert_close(found.edge_values[member], expected, rtol=0, atol=1e-10)
    assert found.edge_values[0].abs().median() > 1e-4


def hooked_scores(hooked, clean, corrupted, right, wrong):
    """EAP on a `HookedTransformer` by its own hooks: the change of each sender times the gradient at each receiver."""
    hooked.set_use_split_qkv_input(True)
    hooked.set_use_attn_result(True)
    hooked.set_use_hook_mlp_in(True)
    layers, heads = hooked.cfg.n_layers, hooked.cfg.n_heads
    last = f"blocks.{layers - 1}.hook_resid_post"
    gradients = {}

    def keep(value, hook):
        gradients[hook.name] = value.detach().clone()

    def reads(name):
        return name.endswith(("_input", "hook_mlp_in")) or name == last

    def writes(name):
        return name.endswith(("hook_embed", "hook_result", "hook_mlp_out"))

    with torch.no_grad():
        _, other = hooked.run_with_cache(corrupted, names_filter=writes)
    _, own = hooked.run_with_cache(clean, names_filter=writes)
    with hooked.hooks(bwd_hooks=[(reads, keep)]):
        difference(hooked(clean), right, wrong).backward()
    changes = {"embed": other["hook_embed"] - own["hook_embed"]}
    for layer in range(layers):
        result = f"blocks.{layer}.attn.hook_result"
        changes |= {f"{layer}.{head}": (other[result] - own[result])[:, :, head] for head in range(heads)}
        changes[f"{layer}.mlp"] = other[f"blocks.{layer}.hook_mlp_out"] - own[f"blocks.{layer}.hook_mlp_out"]
    at = {"logits": gradients[last]}
    for layer in range(layers):
        at[f"{layer}.mlp"] = gradients[f"blocks.{layer}.hook_mlp_in"]
        for role in "qkv":
            gradient = gradients[f"blocks.{layer}.hook_{role}_input"]
            at |= {f"{layer}.{head}.{role}": gradient[:, :, head] for head in range(heads)}
    return {(s, r): float((change * gradient).sum()) for s, change in changes.items() for r, gradient in at.items()}


def pre_norm_hooked(ensemble, member):
    """A decoder with norms before its layers in TransformerLens, which `to_transformer_lens` does not convert."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    spec, weights = ensemble.spec, ensemble.member_weights(member)
    config = HookedTransformerConfig(
        n_layers=spec.layers,
        d_model=spec.width,
        n_heads=spec.heads,
        d_head=spec.head_width,
        d_mlp=spec.hidden,
        d_vocab=11,
        n_ctx=6,
        act_fn="gelu_new",
        normalization_type="LN",
        dtype=torch.float64,
        device="cpu",
    )
    with pytest.warns(DeprecationWarning):
        hooked = HookedTransformer(config)
    state = hooked.state_dict()
    for name in state:
        if name in weights:
            value = weights[name]
        elif name == "unembed.W_U":
            value = weights["embed.W_E"].T
        else:
            continue
        shape = state[name].shape
        by_head = name.endswith(("W_Q", "W_K", "W_V"))
        state[name] = value.view(len(value), *shape[::2]).transpose(0, 1) if by_head else value.reshape(shape)
    state["unembed.b_U"] = torch.zeros(11, dtype=torch.float64)
    hooked.load_state_dict(state)
    return hooked


def third():
    """Return whether TransformerLens 3 is installed; the models of version 4 have no hooks before the maps of heads."""
    try:
        return version("transformer-lens").startswith("3.")
    except PackageNotFoundError:
        return False


@pytest.mark.skipif(not third(), reason="needs TransformerLens 3 (make test-transformer-lens-3)")
@pytest.mark.parametrize("form", ["no-norm", "pre"])
def test_equals_hooks_of_transformer_lens(form):
    ensemble = drawn(FORMS[form])
    found = score_edges(ensemble, *PAIRS)
    for member in range(2):
        hooked = to_transformer_lens(ensemble, member) if form == "no-norm" else pre_norm_hooked(ensemble, member)
        torch.testing.assert_close(hooked(PAIRS[0])[:, -1], ensemble(PAIRS[0])[member, :, -1], rtol=0, atol=1e-8)
        expected = hooked_scores(hooked, *PAIRS)
        assert max(map(abs, expected.values())) > 0.1
        for edge, value in zip(found.edges, found.edge_values[member].tolist(), strict=True):
            assert value == pytest.approx(expected[edge.sender, edge.receiver], abs=1e-4), edge


@pytest.mark.parametrize("form", ["post", "pre", "rms", "no-residual"])
@pytest.mark.parametrize("steps", [1, 4])
def test_edges_that_leave_a_unit_add_up_to_its_score(form, steps):
    """Both come from passes of different kinds: one stream for every receiver, and changes at the sites of a model."""
    ensemble = drawn(FORMS[form])
    edges, units = (method(ensemble, *PAIRS, steps=steps) for method in (score_edges, score_units))
    for place, unit in enumerate(units.units):
        leaving = [at for at, edge in enumerate(edges.edges) if edge.sender == unit]
        torch.testing.assert_close(edges.edge_values[:, leaving].sum(dim=1), units.values[:, place])


@pytest.mark.slow
def test_integrated_gradients_of_the_embedding_tend_to_the_whole_change():
    """The fundamental theorem: the mean gradient along a straight path, times its length, is the change at its end.

    A sum over m points on one side of their intervals misses it by a term in 1 / m, which two sums show and remove.
    """
    ensemble = drawn(FORMS["pre"])  # GELU, as the corners of ReLU would blur the law
    clean, corrupted, right, wrong = PAIRS
    models = [Written(ensemble, member) for member in range(2)]
    near, far = (
        torch.stack([difference(model(model.embedded(each)), right, wrong) for model in models])
        for each in (clean, corrupted)
    )
    errors = {}
    for steps in (4, 32, 128):
        found = score_edges(ensemble, *PAIRS, steps=steps)
        leaving = [at for at, edge in enumerate(found.edges) if edge.sender == "embed"]
        errors[steps] = found.edge_values[:, leaving].sum(dim=1) - (far - near)
    assert (errors[128].abs() < 0.02 * (far - near).abs()).all()
    assert ((4 * errors[128] - errors[32]).abs() / 3 < 0.002 * (far - near).abs()).all()
    torch.testing.assert_close(errors[32] / errors[128], torch.full((2,), 4.0).double(), rtol=0.2, atol=0)
    assert (errors[4].abs() > 10 * errors[128].abs()).all()


@pytest.mark.parametrize(("steps", "expected"), [(1, 0.0), (2, -30.0), (4, -15.0)])
def test_saturated_attention_is_seen_by_integrated_gradients_alone(steps, expected):
    """The broadcasting head's scores are 60 where the anchor was brought: its softmax is flat but half way.

    With the anchor moved, the difference of the logits is a - b, for the attention a to the clean and b to the
    corrupted place. Half way both scores are 30 and a = b = 1/2, so that the difference changes by 2 a b 60 = 30 with
    each of both marks; at either end its derivative is 0. One mark changes by -1 and the other by 1, which gives -60 in
    the one of all steps that is half way.
    """
    clean, corrupted, right, wrong, _ = other_anchor()
    found = score_edges(stacked(identity_solver(), identity_solver()), clean, corrupted, right, wrong, steps=steps)
    at = {str(edge): value for edge, value in zip(found.edges, found.edge_values[1].tolist(), strict=True)}
    for edge in ("embed → 0.0.v", "0.0 → 1.0.k"):
        assert at.pop(edge) == pytest.approx(expected, abs=1e-3)
    assert all(abs(value) < 2.001 for value in at.values())


def test_every_member_has_the_scores_that_it_has_alone():
    ensemble = drawn(BASE, members=3)
    together = score_edges(ensemble, *PAIRS, steps=2)
    assert (together.edge_values[0] - together.edge_values[1]).abs().max() > 0.01
    for member in range(3):
        alone = score_edges(ensemble.select([member]), *PAIRS, steps=2)
        torch.testing.assert_close(together.edge_values[[member]], alone.edge_values, rtol=0, atol=1e-12)


def test_counts_its_passes():
    """The other run once; and for each step a run and its gradient, the first of which is the plain run."""
    ensemble = drawn(BASE, members=1)
    assert score_edges(ensemble, *PAIRS).passes == (2, 1)
    assert score_edges(ensemble, *PAIRS, steps=5).passes == (6, 5)
