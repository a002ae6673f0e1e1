"""The real language model on the smallest machine: exact logits, memory within the bound, known behaviour of heads."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import anchorlab as al
from anchorlab.language import LanguageModel

MEMORY = """
from pathlib import Path

import torch

import anchorlab as al

model = al.pretrained("smollm2")
inputs = torch.randint(0, model.vocabulary, (64, 64), generator=torch.Generator().manual_seed(0))
record = al.look(model, inputs, ["blocks.*.attn.hook_pattern"], output=False)
assert len(record) == 30 and tuple(record["blocks.7.attn.hook_pattern"].shape) == (1, 64, 9, 64, 64)
# not getrusage, whose peak includes that of the process that started this one
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""


@pytest.fixture(scope="module")
def model(smollm2: Path) -> LanguageModel:
    return al.pretrained("smollm2")


def test_its_logits_are_those_of_transformers(model: LanguageModel, smollm2: Path) -> None:
    from transformers import AutoModelForCausalLM

    texts = model.tokenise(["The capital of France is Paris, and the capital of Spain is"])
    own = AutoModelForCausalLM.from_pretrained(smollm2, attn_implementation="eager", local_files_only=True)
    with torch.no_grad():
        assert torch.equal(model(texts.inputs), own(texts.inputs, use_cache=False).logits)
    assert model.words(model(texts.inputs)[0, -1].topk(1).indices) == [" Madrid"]
    assert (len(model.blocks), model.context, model.vocabulary) == (30, 8192, 49152)


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
def test_the_patterns_of_all_heads_stay_within_the_memory_bound(smollm2: Path) -> None:
    """270 heads on 64 sequences of 64 tokens in 2 GiB, with the model and the library."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * 1024**3


def test_heads_of_induction_find_repeated_random_tokens(model: LanguageModel) -> None:
    """On random tokens that repeat, the second half is predicted far better than the first, by induction heads."""
    half = torch.randint(100, 40_000, (8, 24), generator=torch.Generator().manual_seed(0))
    inputs = torch.cat([half, half], dim=1)
    record = al.look(model, inputs, ["blocks.*.attn.hook_pattern"])
    found = al.detect(record).filter(detector="induction")
    assert found["value"].max() > 0.8
    losses = -record["output"][0, :, :-1].log_softmax(-1).gather(-1, inputs[:, 1:, None])[..., 0]
    assert losses[:, :23].mean() > 8
    assert losses[:, 36:].mean() < 2


@pytest.mark.nightly
def test_a_page_of_all_heads_holds_what_look_gives(model: LanguageModel) -> None:
    """270 heads on two texts of over 50 tokens, within 5 MB."""
    from anchorlab.findings.view import weights_of

    sentence = "The old man walked along the river and thought about the years that had passed since the war."
    texts = [" ".join([sentence] * 3), " ".join([sentence, "When Mary and John went to a store,"] * 2)]
    shown = al.show(model, texts)
    tokens = model.tokenise(texts)
    assert min(tokens.lengths) > 50 and len(shown.html.encode()) < 5e6
    assert shown.view.examples[0].texts[:3] == ("The", " old", " man")
    record = al.look(model, tokens.inputs, ["blocks.*.attn.hook_pattern"], output=False)
    held = torch.frombuffer(bytearray(shown.view.weights), dtype=torch.uint16).float() / 1000
    each = [weights_of(length, causal=True) for length in tokens.lengths.tolist()]
    for text, part in enumerate(held.split([270 * size for size in each])):
        length = int(tokens.lengths[text])
        queries, keys = torch.tril_indices(length, length)
        for layer, heads in enumerate(part.reshape(30, 9, each[text])):
            expected = record.at(f"blocks.{layer}.attn.hook_pattern", member=0, batch=text)[:, queries, keys]
            assert (heads - expected).abs().max() < 0.000501
