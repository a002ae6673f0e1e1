"""The models once more, in numpy, one sequence at a time, written from the papers' equations alone."""

import numpy as np


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def layer_norm(x, w, b):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * w + b


def hidden_from(scores):
    length = len(scores)
    return np.where(np.arange(length)[None, :] > np.arange(length)[:, None], -np.inf, scores)


def heads(q, k, v, count, mask, softmax=softmax):
    """The concatenated heads: softmax(Q Kᵀ / sqrt(d_k)) V for each, d_k columns apiece."""
    d_k = q.shape[1] // count
    out = []
    for head in range(count):
        part = slice(head * d_k, (head + 1) * d_k)
        scores = q[:, part] @ k[:, part].T / np.sqrt(d_k)
        out.append(softmax(hidden_from(scores) if mask else scores) @ v[:, part])
    return np.concatenate(out, axis=1)


WEIGHTS = {
    "softmax": softmax,
    "linear": lambda scores: np.where(np.isinf(scores), 0, scores),
    "uniform": lambda scores: ~np.isinf(scores) / (~np.isinf(scores)).sum(axis=-1, keepdims=True),
}
"""How much each key counts, given its score, minus infinity if it is hidden."""


def decoder(
    tokens, W, layers, count, *, residual=True, output_linear=True, layer_norms=True, feed_forward=True,
    projection=True, mask=True, shift=0, kinds=(),
):  # fmt: skip
    """Anchor functions, B.1: post-layer-norm blocks; each switch leaves its part out."""
    x = W["embed.W_E"][tokens] + W["pos_embed.W_pos"]
    for layer in range(layers):
        w = {name.removeprefix(f"blocks.{layer}."): value for name, value in W.items()}
        v = x @ w["attn.W_V"]
        if shift:
            v = np.concatenate([v[shift:], np.zeros((shift, v.shape[1]))])
        out = heads(x @ w["attn.W_Q"], x @ w["attn.W_K"], v, count, mask, WEIGHTS[kinds[layer] if kinds else "softmax"])
        if output_linear:
            out = out @ w["attn.W_O"]
        x = x + out if residual else out
        if layer_norms:
            x = layer_norm(x, w["ln1.w"], w["ln1.b"])
        if feed_forward:
            out = np.maximum(x @ w["mlp.W_in"], 0) @ w["mlp.W_out"]
            x = x + out if residual else out
            if layer_norms:
                x = layer_norm(x, w["ln2.w"], w["ln2.b"])
    return x @ W["unembed.W_U"] + W["unembed.b_U"] if projection else x


def recall(tokens, W, kinds, scaled=True):
    """Truncated weights, section 4: the display of the two-layer transformer, position by position.

    As printed where not `scaled`; with the root of the authors' code otherwise.
    """
    x = [W["embed.W_E"][token] + W["pos_embed.W_pos"][t] for t, token in enumerate(tokens)]
    d = len(x[0])
    for layer, kind in enumerate(kinds):
        w = {name.removeprefix(f"blocks.{layer}."): value for name, value in W.items()}
        values = w["attn.W_V"] @ w["attn.W_O"] if "attn.W_O" in w else w["attn.W_V"]
        new = []
        for t in range(len(x)):
            scores = np.array([x[t] @ w["attn.W_KQ"] @ x[s] for s in range(t + 1)])
            weights = softmax(scores / np.sqrt(d) if scaled else scores)
            y = x[t] + sum(weights[s] * (x[s] @ values) for s in range(t + 1))
            if kind == "mlp":
                y = y + np.maximum(y @ w["mlp.W_in"], 0) @ w["mlp.W_out"]
            elif kind == "linear":
                y = y + y @ w["mlp.W_F"]
            new.append(y)
        x = new
    return np.stack(x) @ W["unembed.W_U"]


def one_layer(tokens, W):
    """Truncated weights, equation 1, in its own columns, for every beginning z_1 .. z_T of the sequence."""
    W_U, W_KQ = W["unembed.W_U"].T, W["blocks.0.attn.W_KQ"]
    W_V, W_F = W["blocks.0.attn.W_V"].T, W["blocks.0.mlp.W_F"].T
    x, logits = W["embed.W_E"][tokens], []
    for T in range(1, len(x) + 1):
        last, seen = x[T - 1], x[:T]
        attention = softmax(np.array([last @ W_KQ @ x_t for x_t in seen]))
        phi = sum(attention[t] * (W_V @ seen[t]) for t in range(T))
        logits.append(W_U @ phi + W_U @ W_F @ last)
    return np.stack(logits)


def pythia(tokens, W, layers, count):
    """GPT-NeoX's block: x + attention(norm(x)) + mlp(another norm(x)), both of the same x; ReLU, no biases."""
    x = W["embed.W_E"][tokens]
    for layer in range(layers):
        w = {name.removeprefix(f"blocks.{layer}."): value for name, value in W.items()}
        y, z = (layer_norm(x, w[f"{norm}.w"], w[f"{norm}.b"]) for norm in ("ln1", "ln2"))
        attended = heads(y @ w["attn.W_Q"], y @ w["attn.W_K"], y @ w["attn.W_V"], count, mask=True) @ w["attn.W_O"]
        x = x + attended + np.maximum(z @ w["mlp.W_in"], 0) @ w["mlp.W_out"]
    return x @ W["unembed.W_U"]


def gpt2(vectors, W, layers, count, *, feed_forward=True, mask=True):
    """GPT-2's block: x + attention(norm(x)), then x + mlp(norm(x)), GELU in its tanh form."""
    x = vectors @ W["embed.W_E"] + W["embed.b_E"]
    for layer in range(layers):
        w = {name.removeprefix(f"blocks.{layer}."): value for name, value in W.items()}
        y = layer_norm(x, w["ln1.w"], w["ln1.b"])
        q, k, v = (y @ w[f"attn.W_{name}"] + w[f"attn.b_{name}"] for name in "QKV")
        x = x + heads(q, k, v, count, mask) @ w["attn.W_O"] + w["attn.b_O"]
        if feed_forward:
            h = layer_norm(x, w["ln2.w"], w["ln2.b"]) @ w["mlp.W_in"] + w["mlp.b_in"]
            h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
            x = x + h @ w["mlp.W_out"] + w["mlp.b_out"]
    return layer_norm(x, W["ln_final.w"], W["ln_final.b"]) @ W["unembed.W_U"] + W["unembed.b_U"]


def fnn(tokens, W, layers):
    """The prediction of a fully connected network for one sequence, repeated at all its positions."""
    x = (W["embed.W_E"][tokens] + W["pos_embed.W_pos"]).ravel()
    for layer in range(layers):
        w = {name.removeprefix(f"blocks.{layer}."): value for name, value in W.items()}
        x = x + np.maximum(x @ w["W_in"] + w["b_in"], 0) @ w["W_out"] + w["b_out"]
    y = (x @ W["flat.W_flat"] + W["flat.b_flat"]) @ W["unembed.W_U"] + W["unembed.b_U"]
    return np.tile(y, (len(tokens), 1))


def rms_norm(x, w):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * w


def turned(x, count):
    """Pairs of coordinates as complex numbers (i, i + d/2), each turned by its position times 10000^(-2i/d)."""
    x = x.reshape(len(x), count, 2, -1)
    pairs, half = x[:, :, 0] + 1j * x[:, :, 1], x.shape[-1]
    speeds = 10000.0 ** (-np.arange(half) / half)
    pairs = pairs * np.exp(1j * np.arange(len(x))[:, None, None] * speeds)
    return np.stack([pairs.real, pairs.imag], axis=2).reshape(len(x), -1)


def modern_decoder(tokens, W, layers, count, *, norm, positions, activation):
    """GPT-2 (Radford et al. 2019) and Llama (Touvron et al. 2023) in their papers' terms, and mixtures of them."""

    def mapped(x, path, letter):
        return x @ W[f"{path}.W_{letter}"] + W.get(f"{path}.b_{letter}", 0)

    def normed(x, name):
        return rms_norm(x, W[f"{name}.w"]) if norm == "rms" else layer_norm(x, W[f"{name}.w"], W[f"{name}.b"])

    def activated(x, path):
        before = mapped(x, path, "in")
        if activation == "gelu":
            return before * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (before + 0.044715 * before**3)))
        gate = mapped(x, path, "gate")
        return gate / (1 + np.exp(-gate)) * before

    x = W["embed.W_E"][tokens] + W.get("pos_embed.W_pos", 0)
    for layer in range(layers):
        attn, mlp = f"blocks.{layer}.attn", f"blocks.{layer}.mlp"
        read = x if norm == "post" else normed(x, f"blocks.{layer}.ln1")
        q, k, v = (mapped(read, attn, role) for role in "QKV")
        if positions == "rotary":
            q, k = turned(q, count), turned(k, count)
        x = x + mapped(heads(q, k, v, count, True), attn, "O")
        if norm == "post":
            x = normed(x, f"blocks.{layer}.ln1")
        read = x if norm == "post" else normed(x, f"blocks.{layer}.ln2")
        x = x + mapped(activated(read, mlp), mlp, "out")
        if norm == "post":
            x = normed(x, f"blocks.{layer}.ln2")
    if norm != "post":
        x = normed(x, "ln_final")
    return mapped(x, "unembed", "U") if "unembed.W_U" in W else x @ W["embed.W_E"].T
