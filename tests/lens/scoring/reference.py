"""A transformer with removable edges, written out for one member, head by head and receiver by receiver.

Independent of the code under test: streams are recomputed for every receiver from a list of what happened to them.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.models import DecoderSpec
from anchorlab.training.ensemble import Ensemble, initialise
from tests.lens import hand_built

SHAPE = TaskShape("tokens", length=6, input_size=11, output_size=11)
BASE = DecoderSpec(layers=2, heads=2, width=8, head_width=6, hidden=9)
FORMS = {
    "post": BASE,
    "post-with-biases": BASE.replace(biases=True),
    "pre": BASE.replace(norm="pre", activation="gelu", biases=True, tied=True),
    "rms": BASE.replace(norm="rms", positions="rotary", activation="swiglu"),
    "no-norm": BASE.replace(layer_norm=False),
    "no-residual": BASE.replace(residual=(True, False)),
    "no-output-map": BASE.replace(head_width=4, output_linear=False, feed_forward=(False, True)),
    "linear": BASE.replace(attention="linear"),
    "no-mask": BASE.replace(mask=False, layer_norm=(True, False)),
}


def drawn(spec: DecoderSpec, members: int = 2) -> Ensemble:
    """Members in float64 without a weight at its default."""
    return hand_built.drawn(initialise(spec, SHAPE, range(members), dtype=torch.float64), 0.3)


def pairs(count: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Clean and corrupted sequences, and the answers of both, `[batch 1]`."""
    noise = torch.Generator().manual_seed(2)
    clean, corrupted = torch.randint(0, 11, (2, count, SHAPE.length), generator=noise)
    right = torch.randint(0, 5, (count, 1), generator=noise)
    return clean, corrupted, right, torch.randint(5, 11, (count, 1), generator=noise)


def difference(logits: Tensor, right: Tensor, wrong: Tensor) -> Tensor:
    """The difference of both answers' logits at the last position, averaged over the sequences."""
    rows = torch.arange(len(logits))
    return (logits[rows, -1, right[:, 0]] - logits[rows, -1, wrong[:, 0]]).mean()


class Written:
    """One member of a decoder, as a function of an embedded stream.

    `share` holds the share of each removed edge, by sender and receiver, and `others` what senders write in the other
    run. After a call, `outputs` holds what every unit wrote.
    """

    def __init__(self, ensemble: Ensemble, member: int = 0) -> None:
        assert isinstance(ensemble.spec, DecoderSpec)
        self.spec, self.weights = ensemble.spec, {name: value[member] for name, value in ensemble.weights.items()}
        self.outputs: dict[str, Tensor] = {}

    def embedded(self, tokens: Tensor) -> Tensor:
        places = self.weights.get("pos_embed.W_pos")
        stream = self.weights["embed.W_E"][tokens]
        return stream if places is None else stream + places[: tokens.shape[1]]

    def __call__(
        self, stream: Tensor, others: Mapping[str, Tensor] | None = None, share: Mapping[tuple[str, str], Tensor] = {}
    ) -> Tensor:
        spec, W = self.spec, self.weights
        events: list[tuple[str, str, Tensor | None]] = []
        self.outputs = {}

        def write(unit: str, value: Tensor, keep: bool = True) -> None:
            events.append(("add" if keep else "replace", unit, value))
            self.outputs[unit] = value

        def read(receiver: str) -> Tensor:
            x = torch.zeros_like(stream)
            for kind, name, value in events:
                if kind == "norm":
                    x = self.normed(x, name)
                    continue
                if value is None:  # a bias
                    x = x + W[name]
                    continue
                part = share.get((name, receiver))
                mixed = value if part is None else (1 - part) * value + part * others[name]
                x = x + mixed if kind == "add" else mixed
            return x

        def switched(switch: bool | tuple[bool, ...], layer: int) -> bool:
            return switch if isinstance(switch, bool) else switch[layer]

        write("embed", stream)
        last = ""
        for layer in range(spec.layers):
            name, norms = f"blocks.{layer}", switched(spec.layer_norm, layer)
            residual, first = switched(spec.residual, layer), spec.norm != "post"
            heads = []
            for head in range(spec.heads):
                inputs = [read(f"{layer}.{head}.{role}") for role in "qkv"]
                if norms and first:
                    inputs = [self.normed(x, f"{name}.ln1") for x in inputs]
                heads.append(self.head(f"{name}.attn", head, *inputs, causal=switched(spec.mask, layer)))
            if not residual:
                events.append(("replace", "nothing", torch.zeros_like(stream)))
            for head, value in enumerate(heads):
                write(f"{layer}.{head}", value)
            if f"{name}.attn.b_O" in W:
                events.append(("add", f"{name}.attn.b_O", None))
            if norms and not first:
                events.append(("norm", f"{name}.ln1", None))
            if switched(spec.feed_forward, layer):
                x = read(f"{layer}.mlp")
                x = self.normed(x, f"{name}.ln2") if norms and first else x
                write(f"{layer}.mlp", self.perceptron(f"{name}.mlp", x), keep=residual)
                if norms and not first:
                    events.append(("norm", f"{name}.ln2", None))
            last = "ln_final" if norms and first else ""
        x = read("logits")
        x = self.normed(x, last) if last else x
        return x @ W["embed.W_E"].T if spec.tied else x @ W["unembed.W_U"] + W.get("unembed.b_U", torch.zeros(()))

    def normed(self, x: Tensor, name: str) -> Tensor:
        if self.spec.norm == "rms":
            return x / ((x**2).mean(-1, keepdim=True) + 1e-6).sqrt() * self.weights[f"{name}.w"]
        x = x - x.mean(-1, keepdim=True)
        x = x / ((x**2).mean(-1, keepdim=True) + 1e-5).sqrt()
        return x * self.weights[f"{name}.w"] + self.weights[f"{name}.b"]

    def head(self, name: str, head: int, *inputs: Tensor, causal: bool) -> Tensor:
        W, size = self.weights, self.spec.head_width
        own = slice(head * size, (head + 1) * size)
        none = torch.zeros(self.spec.heads * size, dtype=torch.float64)
        q, k, v = (
            x @ W[f"{name}.W_{role}"][:, own] + W.get(f"{name}.b_{role}", none)[own]
            for x, role in zip(inputs, "QKV", strict=True)
        )
        if self.spec.positions == "rotary":
            pair = torch.arange(size // 2, dtype=torch.float64)
            angles = torch.arange(q.shape[1])[:, None] * 10000.0 ** (-2 * pair / size)
            turn = torch.polar(torch.ones_like(angles), angles)
            turned = (torch.complex(x[..., : size // 2], x[..., size // 2 :]) * turn for x in (q, k))
            q, k = (torch.cat([x.real, x.imag], dim=-1) for x in turned)
        scores = q @ k.mT / size**0.5
        if causal:
            hidden = 0 if self.spec.attention == "linear" else -torch.inf
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), hidden)
        z = (scores if self.spec.attention == "linear" else scores.softmax(-1)) @ v
        return z @ W.get(f"{name}.W_O", torch.eye(len(none), dtype=torch.float64))[own]

    def perceptron(self, name: str, x: Tensor) -> Tensor:
        W, none = self.weights, torch.zeros((), dtype=torch.float64)
        pre = x @ W[f"{name}.W_in"] + W.get(f"{name}.b_in", none)
        if self.spec.activation == "swiglu":
            gate = x @ W[f"{name}.W_gate"]
            post = gate * gate.sigmoid() * pre
        elif self.spec.activation == "gelu":
            post = 0.5 * pre * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (pre + 0.044715 * pre**3)))
        else:
            post = pre.clamp(min=0)
        return post @ W[f"{name}.W_out"] + W.get(f"{name}.b_out", none)


def replaced(model: Written, clean: Tensor, corrupted: Tensor, baseline: str) -> dict[str, Tensor]:
    """What takes the place of what units write: in the other run, the mean over sequences at each position, or 0."""
    model(model.embedded(corrupted if baseline == "pair" else clean))
    if baseline == "pair":
        return model.outputs
    share = 1.0 if baseline == "mean" else 0.0
    return {unit: share * value.mean(dim=0).expand_as(value) for unit, value in model.outputs.items()}


def edge_slopes(
    ensemble: Ensemble, member: int, edges: list[tuple[str, str]], steps: int = 1, baseline: str = "pair"
) -> Tensor:
    """The mean over `steps` runs of the derivative of `difference` with respect to the share of each removed edge."""
    clean, corrupted, right, wrong = pairs()
    model = Written(ensemble, member)
    far = replaced(model, clean, corrupted, baseline)
    start, end = model.embedded(clean), far["embed"]
    model(start)
    near = model.outputs
    total = torch.zeros(len(edges), dtype=torch.float64)
    for step in range(1, steps + 1):
        stream = end + step / steps * (start - end)
        model(stream)
        others = {unit: value + far[unit] - near[unit] for unit, value in model.outputs.items()}
        share = torch.zeros(len(edges), dtype=torch.float64, requires_grad=True)
        found = difference(model(stream, others, dict(zip(edges, share, strict=True))), right, wrong)
        total += torch.autograd.grad(found, share)[0] / steps
    return total
