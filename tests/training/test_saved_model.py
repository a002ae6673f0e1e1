"""Members outside their run: plain modules, one call of the ensemble, folders that a fresh process opens."""

import hashlib
import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

import anchorlab as al
from anchorlab.engine import run
from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.models import DecoderSpec
from anchorlab.runs import Run, Store
from anchorlab.training import Evaluation, Members, Times, TrainedRun, initialise, load_pretrained
from tests.small_experiments import KINDS, experiment

SEEDS = (3, 5)


@pytest.fixture(scope="module", params=KINDS)
def trained(request, tmp_path_factory):
    one = experiment(request.param, duration=2, members=Members(seeds=SEEDS), evaluation=Evaluation(size=4))
    return run([one], Store(tmp_path_factory.mktemp("store")), workers=1)[0]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    changes = {"precision": "float32", "evaluation": Evaluation(size=4), "checkpoints": Times(every=1)}
    one = experiment(duration=2, members=Members(seeds=SEEDS), **changes)
    return run([one], Store(tmp_path_factory.mktemp("store")), workers=1)[0]


@pytest.fixture
def folder(decoder, tmp_path):
    return decoder.save_pretrained(tmp_path / "saved", seed=5)


def inputs_of(found):
    task = found.experiment.task
    inputs = task.sample(task.splits[-1], 6, seed=9).inputs
    return inputs.double() if inputs.is_floating_point() else inputs


def by_hand(found, member):
    """The model as plain torch builds it, with the weights in the run's file of the last checkpoint."""
    weights = load_file(found.run.path / "checkpoints" / f"step-{found.checkpoints[-1]:08d}.safetensors")
    module = found.experiment.model.build(found.experiment.task.shape).double()
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        value.data.copy_(weights[name][member])
    return module.eval()


def bits(output):
    return hashlib.sha256(output.detach().contiguous().numpy().tobytes()).hexdigest()


def test_every_kind_of_model_answers_alike(trained):
    inputs = inputs_of(trained)
    whole = trained.ensemble()(inputs)
    for member, seed in enumerate(SEEDS):
        expected = by_hand(trained, member)(inputs)
        torch.testing.assert_close(whole[member], expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(trained.model(seed)(inputs), expected, rtol=1e-10, atol=1e-12)
    assert float((whole[0] - whole[1]).abs().max()) > 1e-3


@pytest.mark.equal_bytes
def test_every_kind_of_model_survives_the_folder(trained, tmp_path):
    inputs = inputs_of(trained)
    for seed in SEEDS:
        module = trained.model(seed)
        opened = al.load_pretrained(trained.save_pretrained(tmp_path / str(seed), seed))
        assert torch.equal(opened(inputs), module(inputs))
        ours, theirs = module.state_dict(), opened.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours)
        assert [one.requires_grad for one in module.parameters()] == [one.requires_grad for one in opened.parameters()]
        assert not opened.training
        blank = trained.experiment.model.build(trained.experiment.task.shape)
        assert not blank.load_state_dict(load_file(tmp_path / str(seed) / "model.safetensors")).missing_keys


def test_the_ensemble_predicts_at_positions(decoder):
    inputs = inputs_of(decoder)
    whole = decoder.ensemble()(inputs)
    assert whole.shape == (2, 6, 9, 201)
    torch.testing.assert_close(decoder.ensemble()(inputs, torch.tensor([8, 2])), whole[:, :, [8, 2]])
    torch.testing.assert_close(decoder.ensemble()(inputs[1:2]), whole[:, 1:2])
    with pytest.raises(SpecError, match=r"^inputs: hold 201, a token outside 0\.\.200"):
        decoder.ensemble()(inputs + 201 - inputs.max())


def test_the_template_has_no_answers(trained):
    inputs = inputs_of(trained)
    with pytest.raises(SpecError, match=r"^template: has no weights; call the ensemble, or run\.model\(seed\)"):
        trained.ensemble().template(inputs)
    assert all(value.is_meta for value in trained.ensemble().template.parameters())


def test_a_model_is_plain_torch(decoder):
    inputs, model = inputs_of(decoder), decoder.model(seed=3)
    seen = []
    handle = model.blocks[0].register_forward_hook(lambda module, given, output: seen.append(output))
    before = model(inputs)
    handle.remove()
    assert len(seen) == 1
    assert len(model._forward_pre_hooks) == 0
    assert all(one.untyped_storage().nbytes() == one.nbytes for one in model.state_dict().values())  # not the stack's
    torch.testing.assert_close(model.to(torch.float64)(inputs).float(), before, rtol=1e-4, atol=1e-5)
    assert next(model.parameters()).dtype == torch.float64
    model = decoder.model(seed=3)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(model(inputs)[:, -1], torch.zeros(6, dtype=torch.int64)).backward()
    optimiser.step()
    assert not torch.equal(model(inputs), before)
    assert torch.equal(decoder.model(seed=3)(inputs), before)  # the run is as it was


@pytest.mark.parametrize(("device", "remedy"), [("cdua", "use cpu or cuda"), (torch.device("cuda:99"), "use cpu")])
def test_a_device_that_does_not_exist_is_refused(decoder, device, remedy):
    for moved in (decoder.model(seed=3), decoder.ensemble()):
        with pytest.raises(SpecError, match=f"^device: '{device}' does not exist; {remedy}$"):
            moved.to(device)


@pytest.mark.slow
@pytest.mark.equal_bytes
def test_a_fresh_process_opens_the_folder_to_the_same_bits(decoder, folder):
    inputs = inputs_of(decoder)
    lines = [
        "import hashlib, torch, anchorlab as al",
        "torch.set_num_threads(1)",
        f"output = al.load_pretrained({str(folder)!r})(torch.tensor({inputs.tolist()})).detach()",
        "print(hashlib.sha256(output.contiguous().numpy().tobytes()).hexdigest())",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == bits(decoder.model(seed=5)(inputs))


@pytest.mark.slow
def test_a_module_of_ones_own_wants_its_registration(tmp_path):
    one = experiment("own recurrent module", duration=1, evaluation=Evaluation(size=4))
    folder = run([one], Store(tmp_path / "runs"), workers=1)[0].save_pretrained(tmp_path / "own")
    line = f"import anchorlab as al; al.load_pretrained({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith("model.json: no model is registered as 'test-lstm'; import the file that registers it")


def test_the_folder_says_where_the_weights_come_from(decoder, folder):
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]
    data = json.loads((folder / "model.json").read_text())
    origin = data["origin"]
    assert (origin["seed"], origin["member"], origin["step"]) == (5, 1, 2)
    assert origin["run"] == decoder.run.address
    assert al.tasks.parse_task(origin["task"]) == decoder.experiment.task
    assert al.models.parse_model(data["model"]) == decoder.experiment.model


@pytest.mark.equal_bytes
def test_a_checkpoint_is_saved(decoder, tmp_path):
    opened = load_pretrained(decoder.save_pretrained(tmp_path, seed=5, step=0))
    assert torch.equal(opened(inputs_of(decoder)), decoder.model(5, step=0)(inputs_of(decoder)))
    assert not torch.equal(opened(inputs_of(decoder)), decoder.model(5)(inputs_of(decoder)))


def test_nothing_is_overwritten_without_saying_so(decoder, folder, tmp_path):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(SpecError, match=r"^folder: .*saved holds a saved model already; .*overwrite=True"):
        decoder.save_pretrained(folder, seed=3)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    decoder.save_pretrained(folder, seed=3, overwrite=True)
    assert torch.equal(load_pretrained(folder)(inputs_of(decoder)), decoder.model(3)(inputs_of(decoder)))
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match=r"^folder: .*file is a file; name a folder"):
        decoder.save_pretrained(tmp_path / "file")
    with pytest.raises(AnchorlabError, match="cannot be made"):
        decoder.save_pretrained(tmp_path / "file" / "below")


def edited(name, **changes):
    def spoil(folder):
        data = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(data | changes))

    return spoil


def cut(name, end):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:end])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "model.json").unlink(), r"^folder: .* holds no model\.json; give one that run\.save"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors: is missing; save it again"),
        (cut("model.json", 40), r"model\.json: is damaged; save it again"),
        (cut("model.safetensors", -1), r"model\.safetensors: is damaged, or of another model; save it again"),
        (edited("model.json", format=2), r"model\.json: has format 2, this version reads 1; update anchorlab"),
        (edited("model.json", shape=None), r"model\.json: shape: .*; save it again"),
        (edited("model.json", model={"kind": "decoder", "layer": 2}), r"model\.json: model\.layer: .*'layers'"),
        (edited("model.json", model={"kind": "mine"}), r"model\.json: no model is registered as 'mine'; import the"),
        (edited("model.json", model={"kind": "decoder"}), r"safetensors: .* does not fit the model 'decoder'"),
        (edited("model.json", extra=1), r"model\.json: extra: unknown field 'extra'"),
    ],
)
def test_a_bad_folder_ends_in_one_line(folder, spoil, message):
    spoil(folder)
    with pytest.raises(SpecError, match=message) as caught:
        load_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(SpecError, match=r"^folder: there is no folder .*none; give one that run\.save_"):
        load_pretrained(tmp_path / "none")
    (tmp_path / "config.json").touch()
    with pytest.raises(SpecError, match=r"holds no model\.json; open a language model with al\.pretrained"):
        load_pretrained(tmp_path)


def test_an_ensemble_prints_in_two_lines(decoder):
    shape = decoder.experiment.task.shape
    shown = repr(initialise(DecoderSpec(layers=2, heads=1, width=8), shape, seeds=range(40)))
    embeddings, block = 201 * 8 + 9 * 8, 4 * 8 * 8 + 2 * 8 * 24 + 2 * 16  # attention, feed-forward layer, norms
    assert shown.splitlines() == [
        "Ensemble of 40 members: DecoderSpec(layers=2, heads=1, width=8)",
        f"{embeddings + 2 * block + 8 * 201 + 201:,} trainable parameters each, float32 on cpu",
    ]
    assert len(repr(decoder.ensemble())) < 200


def test_runs_and_batches_print_short(decoder):
    spec = "DecoderSpec(layers=2, heads=2, width=16, hidden=24)"
    assert repr(decoder) == f"anchor/identity {decoder.run.address}: {spec}, 2 seeds, 2 steps"
    batch = decoder.experiment.task.sample("test", 1000, seed=0)
    assert repr(batch).splitlines() == [
        "Batch of 1000 sequences of 'test'",
        "  inputs [1000, 9], targets [1000, 1], answers [1000, 1], positions [1]",
        "  latents rule, anchors, anchor_positions, keys, key_positions",
    ]


def test_a_damaged_run_prints_too(decoder, tmp_path):
    path = shutil.copytree(decoder.run.path, tmp_path / decoder.run.address)
    (path / "spec.json").write_bytes((path / "spec.json").read_bytes()[:-9])
    shown = repr(TrainedRun(Run(path)))
    assert shown.startswith(f"TrainedRun({str(path)!r}): ") and "damaged" in shown and "\n" not in shown
