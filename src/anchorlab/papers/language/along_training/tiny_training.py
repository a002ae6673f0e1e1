"""Checkpoints of a tiny model of the Pythia family's architecture, trained here: for smoke profiles and tests."""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional

from anchorlab.language.checkpoints import revision_of
from anchorlab.language.encode import windows
from anchorlab.language.pretrained import quiet
from anchorlab.language.sample_text import english_page
from anchorlab.papers.pretrained.tiny import byte_tokenizer
from anchorlab.rng import generator

_LAYERS, _HEADS, _WIDTH, _CONTEXT, _LENGTH, _BATCH, _RATE = 2, 4, 32, 128, 32, 8, 1e-2


def train_tiny(folder: Path, steps: Sequence[int], seed: int = 0) -> None:
    """Train a GPT-NeoX of 2 layers with 4 heads on the page of English, and save it at these steps.

    Each checkpoint is a folder such as `step4`, in half precision with its tokenizer, as Pythia's are on the hub.
    """
    import transformers

    tokenizer = byte_tokenizer()
    config = transformers.GPTNeoXConfig(
        vocab_size=len(tokenizer),
        hidden_size=_WIDTH,
        intermediate_size=2 * _WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        max_position_embeddings=_CONTEXT,
        rotary_pct=0.5,
    )
    pieces = windows(tokenizer, english_page().text, _LENGTH, _CONTEXT)
    random = generator(seed, "language", "tiny training")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.GPTNeoXForCausalLM(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE)
    for step in range(max(steps) + 1):
        if step in steps:
            saved = copy.deepcopy(model).half()
            with quiet():
                saved.save_pretrained(folder / revision_of(step))
            tokenizer.save_pretrained(folder / revision_of(step))
        batch = pieces[torch.from_numpy(random.choice(len(pieces), _BATCH, replace=False))]
        logits = model(input_ids=batch, use_cache=False).logits[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
