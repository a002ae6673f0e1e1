"""Small language models trained here on generated sentences, as checkpoints along training.

Most sentences state a fact or say who gives something to whom; some of these continue with "the" in place of the right
word, as in ordinary text. The rest is prose and verse.
"""

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch.nn import functional

from anchorlab.language.checkpoints import revision_of
from anchorlab.language.encode import windows
from anchorlab.language.pretrained import quiet
from anchorlab.language.prompts import facts, indirect_objects
from anchorlab.language.sample_text import english_page, poems
from anchorlab.papers.pretrained.tiny import drawn_model
from anchorlab.rng import generator

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Choice = TypeVar("Choice")

CONTEXT = 512  # maximum number of tokens of a text
WARM_UP = 50  # steps over which the learning rate rises to its value
PLACES = ("north", "south", "east", "west", "middle", "heart")
PEOPLE = ("man", "woman", "girl", "boy", "teacher", "doctor")


@dataclass(frozen=True)
class Training:
    """How one model is trained."""

    sentences: int = 30_000  # half about indirect objects, a third about facts, the others prose and verse
    the_after_objects: float = 0.25  # the fraction of sentences of this kind that continue with "the"
    the_after_facts: float = 0.5
    vocabulary: int = 2000  # tokens
    layers: int = 2
    width: int = 64
    heads: int = 4
    batch: int = 16
    length: int = 64  # tokens of a training sequence
    learning_rate: float = 4e-3


def train_checkpoints(
    folder: Path,
    seed: int,
    steps: Sequence[int],
    training: Training,
    progress: Callable[[int], None] = lambda step: None,
) -> None:
    """Train a GPT-NeoX with AdamW, and save it after each of the given numbers of steps.

    Each checkpoint is a folder such as `step4`, in half precision with its tokenizer, like Pythia's on the hub. The
    seed is that of sentences, initial weights and batches; `progress` gets the number of steps done before each step.
    """
    import transformers

    lines = generated_sentences(seed, training)
    tokenizer = _trained_tokenizer(lines, training.vocabulary)
    sequences = windows(tokenizer, "\n".join(lines), training.length, CONTEXT)
    config = transformers.GPTNeoXConfig(
        hidden_size=training.width,
        intermediate_size=4 * training.width,
        num_attention_heads=training.heads,
        num_hidden_layers=training.layers,
        vocab_size=len(tokenizer),
        max_position_embeddings=CONTEXT,
        rotary_pct=0.5,
    )
    random = generator(seed, "language", "batches")
    model = drawn_model(transformers.GPTNeoXForCausalLM, config, seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=training.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, (step + 1) / WARM_UP))
    for step in range(max(steps) + 1):
        progress(step)
        if step in steps:
            with quiet():
                copy.deepcopy(model).half().save_pretrained(folder / revision_of(step))
            tokenizer.save_pretrained(folder / revision_of(step))
        batch = sequences[torch.from_numpy(random.integers(len(sequences), size=training.batch))]
        logits = model(input_ids=batch, use_cache=False).logits[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        warm_up.step()


def generated_sentences(seed: int, training: Training) -> list[str]:
    """Return the training text in random order, without the 100 sentences on indirect objects that are measured."""
    random = generator(seed, "language", "training text")
    measured = {prompt.text for prompt in indirect_objects(100)}
    drawn = indirect_objects(10_000, seed=seed)
    objects = [prompt for prompt in drawn if prompt.text not in measured]
    countries = facts(("country",), (0, 1))
    page = english_page().text.replace("\n\n", " ")
    others = [*re.split(r"(?<=[.!?]) ", page), *(" ".join(poem.lines) for poem in poems())]

    def one_of(choices: Sequence[Choice]) -> Choice:
        return choices[int(random.integers(len(choices)))]

    lines = []
    for kind in random.choice(3, training.sentences, p=(1 / 2, 1 / 3, 1 / 6)):
        if kind == 2:
            lines.append(one_of(others))
            continue
        prompt = one_of(objects if kind == 0 else countries)
        the = random.random() < (training.the_after_objects if kind == 0 else training.the_after_facts)
        instead = one_of(PEOPLE) if kind == 0 else f"{one_of(PLACES)} of {prompt.answer}"
        lines.append(f"{prompt.text} {f'the {instead}' if the else prompt.answer}.")
    return lines


def _trained_tokenizer(lines: Sequence[str], size: int) -> "PreTrainedTokenizerBase":
    """Return a tokenizer of frequent words and pieces of words in the lines, which can encode any text."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    signs = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, initial_alphabet=signs, show_progress=False))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made)
