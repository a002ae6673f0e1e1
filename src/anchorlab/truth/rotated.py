"""Hide a program's blocks: put its stream in a random basis, and add noise in directions that nothing reads."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from anchorlab.models import DecoderSpec

_SPARE = 4  # the stream gets one new direction, for noise, per this many of its own
_WRITES, _READS = (".W_E", ".W_pos", ".W_O", ".W_out"), (".W_Q", ".W_K", ".W_V", ".W_in", ".W_U")


def rotated(
    spec: DecoderSpec, weights: dict[str, Float[Tensor, "..."]], generator: torch.Generator
) -> tuple[DecoderSpec, dict[str, Float[Tensor, "..."]]]:
    """Return a decoder with the same outputs whose weights do not show what reads or writes what.

    1. The stream gets new directions, a quarter as many as it has. Embeddings, heads and feed-forward layers write
       noise there, which nothing reads: a random linear map of their other output, with the same Frobenius norm. An
       idle head gets random weights with the norms of the first head of its layer, and writes only there.
    2. Random orthogonal matrices rotate the stream, each head's queries and keys (by the same matrix) and each head's
       values; neurons are permuted.
    """
    spare = -(-spec.width // _SPARE)
    wide = spec.replace(width=spec.width + spare)
    draw = _Draw(generator, spare)
    found = dict(weights)
    for name, value in weights.items():  # zeros for new directions of the stream
        if name.endswith(_WRITES + _READS):
            found[name] = pad(value, (0, spare) if name.endswith(_WRITES) else (0, 0, 0, spare))
    for name in ("embed.W_E", "pos_embed.W_pos", *(name for name in found if name.endswith("mlp.W_out"))):
        found[name][:, -spare:] = draw.noise(weights[name], weights[name].norm())
    _hide_heads(spec, found, draw)
    for name in [name for name in found if name.endswith("mlp.W_in")]:
        order, outputs = torch.randperm(found[name].shape[1], generator=generator), name.replace("W_in", "W_out")
        found[name], found[outputs] = found[name][:, order], found[outputs][order]
    stream = draw.orthogonal(wide.width)
    for name, value in found.items():
        if name.endswith(_WRITES):
            found[name] = value @ stream
        elif name.endswith(_READS):
            found[name] = stream.T @ value
    return wide, found


@dataclass(frozen=True)
class _Draw:
    """Random numbers in float64 for the spare directions."""

    generator: torch.Generator
    spare: int

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.generator)

    def noise(self, signal: Float[Tensor, "row width"], norm: Tensor) -> Float[Tensor, "row spare"]:
        """Return a random linear map of `signal`, what is written, with a given Frobenius norm."""
        drawn: Tensor = signal @ self.normal(signal.shape[1], self.spare)
        scale: Tensor = norm / drawn.norm()
        return drawn * scale

    def orthogonal(self, size: int) -> Float[Tensor, "row column"]:
        """Return a uniformly distributed orthogonal matrix. Source: Mezzadri (2007), arXiv math-ph/0609050."""
        parts: tuple[Tensor, Tensor] = torch.linalg.qr(self.normal(size, size))
        return parts[0] * parts[1].diagonal().sign()


def _hide_heads(spec: DecoderSpec, weights: dict[str, Tensor], draw: _Draw) -> None:
    """Let every head write noise, and rotate its coordinates, in place."""
    read = spec.width  # directions from here on are spare
    for layer in range(spec.layers):
        first: list[Tensor] = []
        for start in range(0, spec.heads * spec.head_width, spec.head_width):
            here = slice(start, start + spec.head_width)
            roles = (weights[f"blocks.{layer}.attn.W_{role}"] for role in "QKVO")
            head = [value[here] if role == 3 else value[:, here] for role, value in enumerate(roles)]
            queries, keys, values, outputs = head
            first = first or [part.clone() for part in head]  # every layer has a unit, and it is the first head
            if outputs.norm() > 0:
                outputs[:, read:] = draw.noise(outputs[:, :read], outputs.norm())
            else:
                for part, like in zip((queries, keys, values), first, strict=False):
                    part[:read] = draw.normal(read, spec.head_width)
                    part *= like.norm() / part.norm()
                outputs[:, read:] = draw.noise(draw.normal(spec.head_width, read), 2**0.5 * first[3].norm())
            matched, moved = draw.orthogonal(spec.head_width), draw.orthogonal(spec.head_width)
            queries[:], keys[:], values[:] = queries @ matched, keys @ matched, values @ moved
            outputs[:] = moved.T @ outputs
