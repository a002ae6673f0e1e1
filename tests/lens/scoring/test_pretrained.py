"""Scores and path patching of pretrained models, beside transformers' own modules with hooks made by hand."""

from functools import cache

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.language.encode import TokenisedTexts
from anchorlab.language.pretrained import wrap
from anchorlab.lens import (
    Edge,
    estimate_patches,
    landscape_on,
    patch,
    patch_edges,
    patch_units,
    prune_edges,
    score_edges,
    score_units,
)
from anchorlab.lens.effects.pairs import Pairs
from anchorlab.lens.scoring.comparison import Comparison
from anchorlab.lens.scoring.graph import graph_of
from tests.language.tiny import HEADS, LAYERS, NAMES, TOKENS, hugging_face, tokens

CLEAN, CORRUPTED = tokens(), tokens().flip(0)
RIGHT = torch.tensor([[5], [17], [40]])
ANSWERS = {"answers": RIGHT, "corrupted_answers": (RIGHT + 1) % TOKENS}


@cache
def theirs(name):
    return hugging_face(name, torch.float64)


@cache
def ours(name):
    return wrap(theirs(name), None, name)


def difference(logits):
    right, wrong = (logits[:, -1].gather(1, each) for each in ANSWERS.values())
    return (right - wrong).mean()


class Llama:
    """Where a Llama of transformers keeps its parts; all norms are root-mean-square norms."""

    def __init__(self, model):
        self.model, self.layers, self.norm = model, model.model.layers, model.model.norm
        self.groups = model.config.num_attention_heads // model.config.num_key_value_heads

    def outputs(self, inputs):
        """Return what each unit adds to the stream, by its name, from hooks on the maps out of both layers."""
        found, hooks = {}, []
        embed = self.model.model.embed_tokens
        hooks.append(embed.register_forward_hook(lambda _, given, output: found.update({"embed": output})))
        for layer, block in enumerate(self.layers):

            def mixed(module, given, output, layer=layer, block=block):
                parts = given[0].unflatten(-1, (HEADS, -1))
                weight = module.weight.T.unflatten(0, (HEADS, -1))
                heads = [parts[..., head, :] @ weight[head] for head in range(HEADS)]
                found.update({f"{layer}.{head}": self.added(block, heads, head) for head in range(HEADS)})

            hooks.append(block.self_attn.o_proj.register_forward_hook(mixed))
            hooks.append(self.fed(block).register_forward_hook(
                lambda _, given, output, layer=layer: found.update({f"{layer}.mlp": output})
            ))  # fmt: skip
        logits = self.model(input_ids=inputs).logits
        for hook in hooks:
            hook.remove()
        return found, logits

    def added(self, block, heads, head):
        return heads[head]

    def fed(self, block):
        return block.mlp.down_proj

    def second_norm(self, block):
        return block.post_attention_layernorm

    def along(self, edge, change, size, frozen=False):
        """Return the metric if the receiver of an edge alone reads the stream plus `size` times a change."""

        def normed(norm, stream):
            moved = norm(stream + size * change)
            if not frozen:
                return moved
            scale = (stream + size * change).square().mean(-1, keepdim=True) + norm.eps_of
            return moved * (scale / (stream.square().mean(-1, keepdim=True) + norm.eps_of)).sqrt()

        hooks, part = [], edge.receiver.split(".")
        if edge.receiver == "logits":
            norms = [self.norm]
        else:
            block = self.layers[int(part[0])]
            norms = [block.input_layernorm if len(part) == 3 else self.second_norm(block)]
        norms[0].eps_of = getattr(norms[0], "variance_epsilon", None) or norms[0].eps
        seen = {}
        if len(part) == 3:
            head, projection = int(part[1]), getattr(block.self_attn, f"{part[2]}_proj")
            hooks.append(norms[0].register_forward_pre_hook(lambda _, given: seen.update(stream=given[0])))

            def replaced(module, given, output):
                by_head = output.unflatten(-1, (-1, block.self_attn.head_dim))
                changed = normed(norms[0], seen["stream"]) @ module.weight.T
                own = changed.unflatten(-1, (-1, block.self_attn.head_dim))
                mask = torch.arange(by_head.shape[-2]) == head
                return torch.where(mask[:, None], own, by_head).flatten(-2)

            hooks.append(projection.register_forward_hook(replaced))
        else:

            def replaced(module, given, output):
                if seen.get("within"):
                    return None
                seen["within"] = True
                found = normed(module, given[0])
                seen["within"] = False
                return found

            hooks.append(norms[0].register_forward_hook(replaced))
        found = difference(self.model(input_ids=CLEAN).logits)
        for hook in hooks:
            hook.remove()
        return found


class Gemma(Llama):
    """Its norms behind both layers belong to what these add, each head with its part of the sum at the sum's scale."""

    def added(self, block, heads, head):
        norm, whole = block.post_attention_layernorm, sum(heads)
        scale = (whole.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
        return heads[head] * scale * (1 + norm.weight)

    def fed(self, block):
        return block.post_feedforward_layernorm

    def second_norm(self, block):
        return block.pre_feedforward_layernorm


FAMILIES = {"llama": Llama, "gemma3_text": Gemma}
SOME = [
    Edge("embed", "0.1.q"), Edge("0.2", "1.0.k"), Edge("0.mlp", "2.1.v"), Edge("1.3", "1.mlp"), Edge("embed", "2.3.q"),
    Edge("0.0", "2.mlp"), Edge("1.mlp", "2.0.k"), Edge("2.1", "logits"), Edge("2.mlp", "logits"),
]  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_edges_are_what_hooks_on_their_modules_give(name):
    """The score is the derivative along the sender's change, and path patching the change of the metric at its end."""
    family = FAMILIES[name](theirs(name))
    clean, logits = family.outputs(CLEAN)
    corrupted, _ = family.outputs(CORRUPTED)
    scores = score_edges(ours(name), CLEAN, CORRUPTED, **ANSWERS)
    patched = patch_edges(ours(name), CLEAN, CORRUPTED, **ANSWERS, edges=SOME, progress=False)
    frozen = patch_edges(ours(name), CLEAN, CORRUPTED, **ANSWERS, edges=SOME, norms="frozen", progress=False)
    assert patched.edges == tuple(SOME)
    for at, edge in enumerate(SOME):
        change = (corrupted[edge.sender] - clean[edge.sender]).detach()
        size = torch.zeros((), dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(family.along(edge, change, size), size)
        assert float(scores.edge_values[0, scores.edges.index(edge)]) == pytest.approx(
            float(slope), rel=1e-5, abs=1e-6
        ), edge
        for of, given in ((False, patched), (True, frozen)):
            moved = family.along(edge, change, 1.0, of) - difference(logits)
            assert float(given.edge_values[0, at]) == pytest.approx(float(moved), rel=1e-5, abs=1e-6), edge
    assert float((patched.edge_values - frozen.edge_values).abs().max()) > 0.01


@pytest.mark.parametrize("name", [*NAMES, "gemma3_text-biased"])
def test_with_every_edge_removed_a_model_answers_as_on_the_other_sequences(name):
    model = ours(name)
    pairs = Pairs.of(model, CLEAN, CORRUPTED, *ANSWERS.values(), None, "clean")
    (part,) = Comparison(pairs, None, None, "pair").parts()
    every = torch.ones(1, len(graph_of(model).units), len(graph_of(model).receivers), dtype=torch.float64)
    for removed, inputs in ((every, CORRUPTED), (torch.zeros_like(every), CLEAN)):
        expected = theirs(name)(input_ids=inputs).logits[:, -1:]
        torch.testing.assert_close(part.outputs(removed)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_units_and_their_edges(name):
    """Patching a unit is `patch` at its site, gradients of edges add up, and those of a long path to the whole."""
    model = ours(name)
    units = score_units(model, CLEAN, CORRUPTED, **ANSWERS)
    edges = score_edges(model, CLEAN, CORRUPTED, **ANSWERS)
    patched = patch_units(model, CLEAN, CORRUPTED, **ANSWERS, progress=False)
    whole = difference(theirs(name)(input_ids=CORRUPTED).logits) - difference(theirs(name)(input_ids=CLEAN).logits)
    assert float(patched.of(["embed"])) == pytest.approx(float(whole), rel=1e-5)
    if name != "gemma3_text":  # there the norm behind a layer would compute anew
        senders = torch.tensor([units.units.index(edge.sender) for edge in edges.edges])
        sums = torch.zeros_like(units.values).index_add(1, senders, edges.edge_values)
        torch.testing.assert_close(sums, units.values, rtol=1e-5, atol=1e-5)
        one = patch(model, CLEAN, CORRUPTED, site="blocks.1.attn.hook_z", over="head", into="clean", **ANSWERS)
        heads = patched.of([f"1.{head}" for head in range(HEADS)]).flatten()
        torch.testing.assert_close(one.difference.flatten() - one.clean, heads, rtol=1e-5, atol=1e-5)


def test_the_score_of_the_embedding_tends_to_the_whole_change():
    few, many = (score_units(ours("gpt2"), CLEAN, CORRUPTED, **ANSWERS, steps=steps) for steps in (50, 400))
    ends = [difference(theirs("gpt2")(input_ids=each).logits) for each in (CORRUPTED, CLEAN)]
    errors = [abs(float(found.of(["embed"]) - ends[0] + ends[1])) for found in (few, many)]
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(8, rel=0.1)  # as of a sum with ever narrower steps


def test_keys_and_values_are_those_of_groups_of_heads():
    model = ours("llama")
    assert [one for one in graph_of(model).receivers if one.startswith("1.")] == [
        *(f"1.{head}.q" for head in range(HEADS)), "1.0.k", "1.1.k", "1.0.v", "1.1.v", "1.mlp",
    ]  # fmt: skip
    units = 1 + LAYERS * (HEADS + 1)
    before = [1 + layer * (HEADS + 1) for layer in range(LAYERS)]
    assert len(graph_of(model).edges) == sum(8 * count + count + HEADS for count in before) + units
    parallel = [edge for edge in graph_of(ours("gpt_neox-parallel")).edges if edge.receiver == "1.mlp"]
    assert [edge.sender for edge in parallel] == ["embed", *(f"0.{head}" for head in range(HEADS)), "0.mlp"]


def test_pruning_keeps_what_the_metric_needs():
    """At a high threshold nothing is read once the edges into the logits are gone, and at a low one all stays."""
    model = ours("llama")
    everything = prune_edges(model, CLEAN, CORRUPTED, **ANSWERS, threshold=1e9, progress=False)
    assert everything.circuit(1e9) == ()
    last = len([edge for edge in graph_of(model).edges if edge.receiver == "logits"])
    assert everything.passes.forward == 1 + 1 + last  # the plain run, the other run, and edges into the logits
    # in any order, the edge into a head is tried last, when nothing reads the head any more
    start = [Edge("0.0", "logits"), Edge("embed", "0.0.k"), Edge("0.1", "logits")]
    none = prune_edges(model, CLEAN, CORRUPTED, **ANSWERS, threshold=1e9, start=start[::-1], progress=False)
    assert none.passes.forward == 3 + 2 and none.circuit(1e9) == ()
    some = prune_edges(model, CLEAN, CORRUPTED, **ANSWERS, threshold=1e-9, start=start, progress=False)
    assert set(some.circuit(1e-9)) == set(start)
    assert some.passes.forward == 3 + len(start)  # the model whole, and with the others removed


def test_padding_changes_nothing():
    model = ours("llama")
    lengths = torch.full((3,), 7)
    padded = [TokenisedTexts(each, lengths) for each in (CLEAN, CORRUPTED)]
    short = [each[:, :7] for each in (CLEAN, CORRUPTED)]
    for method in (score_units, score_edges):
        for baseline in ("pair", "mean", "zero"):
            found, expected = (method(model, *each, **ANSWERS, baseline=baseline) for each in (padded, short))
            torch.testing.assert_close(found.values, expected.values)


@pytest.mark.untyped  # values of other types than the annotations name
def test_unfitting_arguments():
    with pytest.raises(SpecError, match=r"^edges\.1: unknown edge '0\.0 → 0\.1\.q'"):
        patch_edges(ours("llama"), CLEAN, CORRUPTED, **ANSWERS, edges=[Edge("embed", "0.1.q"), Edge("0.0", "0.1.q")])
    with pytest.raises(SpecError, match=r"^norms: unknown"):
        patch_edges(ours("llama"), CLEAN, CORRUPTED, **ANSWERS, norms="still")


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3_text"])
def test_patches_estimated_by_head_and_position(name):
    """Beside transformers' own module: gradients at what enters the output maps, with texts of two lengths."""
    model = theirs(name)
    lengths = torch.tensor([11, 8, 11])
    clean, corrupted = (TokenisedTexts(one, lengths) for one in (CLEAN, CORRUPTED))
    found = estimate_patches(ours(name), clean, corrupted, *ANSWERS.values(), into="clean", progress=False)
    maps = [
        block.attn.c_proj if name == "gpt2" else block.self_attn.o_proj
        for block in (model.transformer.h if name == "gpt2" else model.model.layers)
    ]
    seen = {}

    def keep(module, given):
        seen[module] = given[0]
        if given[0].requires_grad:
            given[0].retain_grad()

    hooks = [one.register_forward_pre_hook(keep) for one in maps]
    expected = torch.zeros(LAYERS, HEADS, 11, dtype=torch.float64)
    for row, length in enumerate(lengths.tolist()):
        with torch.no_grad():
            model(CORRUPTED[[row], :length])
        others = {one: seen[one] for one in maps}
        logits = model(CLEAN[[row], :length]).logits[0, -1]
        right, wrong = (each[row, 0] for each in ANSWERS.values())
        (logits[right] - logits[wrong]).backward()
        for layer, one in enumerate(maps):
            product = (others[one] - seen[one].detach()) * seen[one].grad
            expected[layer, :, :length] += product[0].unflatten(-1, (HEADS, -1)).sum(dim=-1).T / 3
    for hook in hooks:
        hook.remove()
    change = found.difference[0] - found.clean[0]
    torch.testing.assert_close(change, expected, atol=1e-6, rtol=0)
    assert expected.abs().max() > 0.01


@pytest.mark.parametrize("name", ["gpt2", "gemma3_text"])
def test_a_landscape_of_texts_of_different_lengths(name):
    """Beside transformers' own module, text by text, with a head and a feed-forward layer removed by hooks."""
    model, lengths = theirs(name), torch.tensor([11, 8, 11])
    found = landscape_on(ours(name), TokenisedTexts(CLEAN, lengths), RIGHT, ["1.2", "2.mlp"], "zero", progress=False)
    block, last = (model.transformer.h if name == "gpt2" else model.model.layers)[1:]
    attention = block.attn.c_proj if name == "gpt2" else block.self_attn.o_proj

    def no_head(module, given):
        return (given[0].unflatten(-1, (HEADS, -1)) * (torch.arange(HEADS) != 2)[:, None]).flatten(-2)

    for subset in range(4):
        hooks = [] if subset & 1 else [attention.register_forward_pre_hook(no_head)]
        hooks += [] if subset & 2 else [last.mlp.register_forward_hook(lambda module, given, output: 0 * output)]
        with torch.no_grad():
            rows = [model(CLEAN[[row], :length]).logits[0, -1] for row, length in enumerate(lengths.tolist())]
        for hook in hooks:
            hook.remove()
        loss = torch.nn.functional.cross_entropy(torch.stack(rows), RIGHT[:, 0])
        assert found.loss[0, subset].item() == pytest.approx(loss.item(), abs=1e-5)
    assert found.loss.std() > 1e-3
