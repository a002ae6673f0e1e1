"""Compiled models: right on every sequence, in any basis, as files, in other instruments."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from anchorlab import load_pretrained
from anchorlab.errors import SpecError
from anchorlab.lens import find_circuit, look
from anchorlab.models.model import predict
from anchorlab.tasks import AnchorFunction, Vocabulary, task
from anchorlab.tasks.anchor.proof import every_latent
from anchorlab.theory.compiled import assemble
from anchorlab.truth import COMPILED, VARIANTS, Truth, compiled
from anchorlab.truth.programs import addition, next_token
from anchorlab.truth.rotated import _Draw, rotated
from anchorlab.truth.variants import cancelling

QUICK = ("identity", "composite")
ADDING = ("composite", "synonym", "multi-anchor")
COUNTED = ("identity", "two-distances", "composite", "synonym", "multi-anchor")
LATENTS = {  # frames (places of the pattern, anchors) times 81 items
    "identity": 8 * 81,
    "two-distances": (8 + 7) * 81,
    "composite": 7 * 16 * 81,
    "synonym": 7 * 25 * 81,
    "multi-anchor": 8 * 10 * 81,
}


def all_sequences(task: AnchorFunction) -> torch.Tensor:
    """One sequence of every latent, in random noise."""
    latents, frames = every_latent(task.reader)
    first, last = task.vocabulary.items
    noise = np.random.default_rng(0).integers(first, last + 1, (len(latents), task.placement.length))
    task.layout.write(noise, frames, latents)
    return torch.from_numpy(noise)


def margins(made, inputs, positions, answers) -> torch.Tensor:
    """How far the right logit is above the next."""
    outputs = made.model(inputs, positions).detach()
    right = outputs.gather(-1, answers.unsqueeze(-1)).squeeze(-1)
    return right - outputs.scatter(-1, answers.unsqueeze(-1), -torch.inf).amax(dim=-1)


@pytest.mark.parametrize("name", COUNTED)
def test_every_latent_is_answered(name):
    """The oracle reads the answer off the sequence."""
    made = compiled(name)
    inputs = all_sequences(made.task)
    assert len(inputs) == LATENTS[name]
    found = made.task.oracle(inputs)
    assert found.known.all()
    assert margins(made, inputs, made.task.positions, found.answers).min() > 14.99


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, pytest.param(20, marks=pytest.mark.nightly)], ids=["10,000", "100,000"])
@pytest.mark.parametrize("name", [name for name in COMPILED if name not in COUNTED])
def test_many_sequences_are_answered(name, parts):
    made = compiled(name)
    for part in range(parts):
        batch = made.task.sample(made.task.splits[part % 2], 5000, seed=part)
        found = made.task.oracle(batch.inputs)
        assert found.known.all()
        assert margins(made, batch.inputs, batch.positions, found.answers).min() > 14.99


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in COMPILED]
)
def test_variants_and_bases_compute_the_same(name):
    """The logits are 15 for the answer and 0 elsewhere; a second head that brings the answer doubles them.

    In a random basis, float32 keeps a millionth of each sum in the stream. Models that add numbers multiply them by 64.
    """
    rounding = 1e-3 if name in ADDING else 5e-6
    for variant in VARIANTS:
        made, turned = compiled(name, variant), compiled(name, variant, rotated=True, seed=7)
        twice = 2 if variant == "backup" and "1.1" in made.truth.useful else 1
        for split in made.task.splits:
            batch = made.task.sample(split, 40, seed=2)
            right = torch.nn.functional.one_hot(batch.answers, made.task.shape.output_size) * twice * 15.0
            assert (made.model(batch.inputs, batch.positions) - right).abs().max() < 1e-4
            error = (turned.model(batch.inputs, batch.positions) - right).abs().max()
            assert error < rounding * twice * 15


def test_softer_attention_still_answers():
    """A gap of 8 between scores leaves a wrong key exp(-8) of the right one's weight."""
    made = compiled("identity", sharpness=8)
    inputs = all_sequences(made.task)
    pattern = look(made.ensemble, inputs, ["blocks.1.attn.hook_pattern"])["blocks.1.attn.hook_pattern"][0, :, 0, -1]
    largest, second = pattern.sort(dim=-1, descending=True).values[:, :2].unbind(dim=1)
    assert (second / largest).max() < np.exp(-7.9) and largest.max() < 0.9999
    found = made.task.oracle(inputs)
    assert margins(made, inputs, made.task.positions, found.answers).min() > 14.9


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_softer_attention_answers_in_every_model(name):
    made = compiled(name, sharpness=8)
    batch = made.task.sample(made.task.splits[-1], 200, seed=0)
    assert margins(made, batch.inputs, batch.positions, batch.answers).min() > 5


@pytest.mark.slow
def test_a_found_circuit_has_the_heads_of_the_truth():
    made = compiled("identity", "distractor", rotated=True, sharpness=8)
    assert find_circuit(made.ensemble, made.task, sequences=64).heads == ((0, 0), (1, 0))


def test_a_folder_holds_the_model_and_its_truth(tmp_path):
    made = compiled("multi-anchor", "backup", rotated=True, seed=5)
    folder = made.write(tmp_path / "one")
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors", "truth.json"]
    batch = made.task.sample("test", 20, seed=0)
    assert torch.equal(load_pretrained(folder)(batch.inputs), made.model(batch.inputs))
    assert Truth.parse(json.loads((folder / "truth.json").read_text())) == made.truth
    origin = json.loads((folder / "model.json").read_text())["origin"]
    assert (origin["name"], origin["variant"], origin["seed"]) == ("multi-anchor", "backup", 5)
    with pytest.raises(SpecError, match="overwrite"):
        made.write(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant", "rounding"),
    [("identity", "cancelling", 5e-6), ("composite", "plain", 1e-3), ("retrieval", "backup", 5e-6)],
)
def test_transformer_lens_computes_the_same(name, variant, rounding):
    pytest.importorskip("transformer_lens")
    from anchorlab.interop import to_transformer_lens

    made = compiled(name, variant, rotated=True)
    batch = made.task.sample(made.task.splits[-1], 20, seed=0)
    theirs = to_transformer_lens(made.ensemble)(batch.inputs)[:, batch.positions]
    assert torch.allclose(theirs, made.model(batch.inputs, batch.positions), atol=rounding * 15)


PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "compiled_models.md"


def test_the_page_lists_every_model_with_its_units():
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    shown = []
    for name in COMPILED:
        made, doubled = compiled(name), compiled(name, "backup").truth
        parts = [unit.name.partition(".")[2] for unit in made.truth.units]
        feed_forward = parts.count("mlp")
        (added,) = {*doubled.useful} - {*made.truth.useful}
        assert len(doubled.minimal) == 2
        layers = str(made.ensemble.spec.layers)
        shown.append([name, made.task.name, layers, str(len(parts) - feed_forward), str(feed_forward), added])
    assert rows == shown


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
    held = {}
    exec(compile(code, str(PAGE), "exec"), held)
    assert (tmp_path / "identity-backup" / "truth.json").exists() and (tmp_path / "identity.html").exists()
    assert held["made"].truth.minimal == (("0.0", "1.0"), ("0.1", "1.0"))


# A random basis: the same outputs in exact arithmetic, and weights that show nothing of the blocks.
@pytest.mark.parametrize("program", [next_token(task("anchor/identity")), addition(task("anchor/composite"))])
def test_the_outputs_are_equal_in_double_precision(program):
    program = cancelling(program)
    spec, weights = assemble(program, 25.0, 15.0)
    wide, turned = rotated(spec, weights, torch.Generator().manual_seed(1))
    batch = program.task.sample("train", 30, seed=0)
    outputs = []
    for each, values in ((spec, weights), (wide, turned)):
        module = each.build(program.task.shape).double()
        module.load_state_dict(values)
        outputs.append(predict(module, batch.inputs, batch.positions))
    assert torch.allclose(outputs[0], outputs[1], atol=1e-9, rtol=0)
    assert wide.width == -(-spec.width * 5 // 4)


def test_no_weight_shows_what_it_reads_or_writes():
    """Weights of the plain model are nearly all 0. Here none is."""
    made, turned = (
        compiled("two-distances", "distractor"),
        compiled("two-distances", "distractor", rotated=True, seed=1),
    )
    for name, value in turned.ensemble.weights.items():
        if name == "unembed.b_U":
            continue
        # tokens that are neither items nor anchors have no embedding, and tokens that are no answer no logit
        outer = {"embed.W_E": 1, "unembed.W_U": 0}.get(name)
        used = (
            value[0]
            if outer is None
            else value[0][:, value[0].abs().sum(0) > 0]
            if outer == 0
            else value[0][value[0].abs().sum(1) > 0]
        )
        assert (used == 0).float().mean() < 1e-4, name
        before = made.ensemble.weights[name][0]
        assert (before == 0).float().mean() > 0.8, name


def test_an_idle_head_has_the_norms_of_a_working_one():
    made = compiled("two-distances", "distractor", rotated=True, seed=1)
    assert made.truth.units[1].role.startswith("idle")
    width = made.ensemble.spec.head_width
    for role in "QKVO":
        weight = made.ensemble.weights[f"blocks.0.attn.W_{role}"][0]
        working, idle = (part.norm().item() for part in weight.split(width, dim=0 if role == "O" else 1))
        assert idle == pytest.approx(working, rel=1e-5), role


def test_seeds_give_other_bases_with_noise_as_large_as_what_it_hides():
    one, same, other = (compiled("identity", rotated=True, seed=seed).ensemble.weights for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.allclose(one["embed.W_E"], other["embed.W_E"])
    # the first column of the bare factor of a QR decomposition always begins with a negative number
    draw = _Draw(torch.Generator().manual_seed(0), 1)
    positive = [float(draw.orthogonal(3)[0, 0]) > 0 for _ in range(400)]
    assert 0.4 < sum(positive) / 400 < 0.6  # four standard errors
    spec, weights = assemble(next_token(task("anchor/identity")), 25.0, 15.0)
    _, turned = rotated(spec, weights, torch.Generator().manual_seed(1))
    for name in ("embed.W_E", "pos_embed.W_pos"):
        assert turned[name].norm() == pytest.approx(2**0.5 * weights[name].norm().item())


# Programs that add: what they refuse, and other operations than the paper's.
def test_other_amounts_and_items():
    one = task("anchor/composite", operations=("+7", "-3", "x", "+11"), items=(30, 60), length=6, unseen=((3, 4),))
    spec, weights = assemble(addition(one), 25.0, 15.0)
    module = spec.build(one.shape)
    module.load_state_dict(weights)
    for split in one.splits:
        batch = one.sample(split, 100, seed=0)
        outputs = predict(module, batch.inputs, batch.positions)
        assert (outputs.argmax(dim=-1) == batch.answers).all() and outputs.amax(dim=-1).min() > 14.99


TWO_AMOUNTS = AnchorFunction(
    vocabulary=Vocabulary(anchors=(3,), items=(30, 40)),
    operations={3: ", ".join(f"{item} -> {item + (1 if item < 35 else 2)}" for item in range(30, 41))},
)
REFUSED = [
    (lambda: compiled("identty"), "name: unknown compiled model 'identty'; did you mean 'identity'?"),
    (lambda: compiled("identity", "backups"), "variant: unknown variant 'backups'; did you mean 'backup'?"),
    *((lambda soft=soft: compiled("identity", sharpness=soft),
       f"sharpness: {soft} is no margin; give a positive number, 8 or more for right answers")
      for soft in (0, -8.0, float("nan"), float("inf"))),
    (lambda: addition(task("anchor/composite", operations=("*2", "+1", "-2", "-8"), size=501)),
     "operations.1: is no addition; use operations such as +5"),
    (lambda: addition(task("anchor/two-distances")), "rules: `4 . x` is no sum that is compiled; use x A B or A x"),
    (lambda: addition(TWO_AMOUNTS), "operations.3: is no addition; use operations such as +5"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_is_not_compiled_is_named(ask, message):
    with pytest.raises(SpecError) as caught:
        ask()
    assert str(caught.value) == message
