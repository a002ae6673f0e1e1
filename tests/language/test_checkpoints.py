"""Checkpoints along training: where they come from, and which faults of their files are named."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from huggingface_hub.errors import LocalEntryNotFoundError, RevisionNotFoundError
from safetensors.torch import load_file, save_file

from anchorlab.errors import SpecError
from anchorlab.language.checkpoints import PYTHIA_STEPS, Fault, StoredWeights, checkpoint_folder, faults, read_weights
from tests.language.tiny import hugging_face


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint in half precision."""
    hugging_face("gpt_neox-parallel").half().save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def rewrite(folder: Path, change: Any) -> StoredWeights:
    """Change the weights of a checkpoint by name, and read it again."""
    path = folder / "model.safetensors"
    weights = change(load_file(path))
    save_file(weights, path, metadata={"format": "pt"})
    return read_weights(folder)


def test_the_steps_of_pythia():
    """154 of them: 0, the powers of 2 up to 512, and every 1000th up to 143 000."""
    assert len(PYTHIA_STEPS) == 154 == len(set(PYTHIA_STEPS))
    assert PYTHIA_STEPS[:12] == (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
    assert PYTHIA_STEPS[-2:] == (142_000, 143_000) and sorted(PYTHIA_STEPS) == list(PYTHIA_STEPS)


@pytest.mark.usefixtures("no_network")
def test_a_folder_of_checkpoints(tmp_path):
    (tmp_path / "run" / "step4").mkdir(parents=True)
    with checkpoint_folder(str(tmp_path / "run"), 4, tmp_path / "work", download=True) as folder:
        assert folder == tmp_path / "run" / "step4"
    assert folder.exists() and not (tmp_path / "work").exists()
    with pytest.raises(SpecError, match=r"model: .*run has no folder step8"):
        checkpoint_folder(str(tmp_path / "run"), 8, tmp_path / "work").__enter__()


@pytest.mark.usefixtures("no_network")
def test_the_cache_of_the_hub_is_read_and_kept(tmp_path, monkeypatch, saved):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--lab--tiny"
    shutil.copytree(saved, repository / "snapshots" / ("a" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "step1").write_text("a" * 40)
    with checkpoint_folder("lab/tiny", 1, tmp_path / "work", download=True) as folder:
        assert read_weights(folder) == read_weights(saved)
    assert (folder / "model.safetensors").exists()
    with pytest.raises(SpecError, match="model: lab/tiny at step2 is not on this machine; allow --download"):
        checkpoint_folder("lab/tiny", 2, tmp_path / "work").__enter__()


class Hub:
    """The hub in place of the network: revisions by name, each a folder."""

    def __init__(self, revisions: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        self.revisions = revisions
        self.asked: list[dict[str, Any]] = []
        monkeypatch.setattr("huggingface_hub.snapshot_download", self.download)

    def download(self, name: str, revision: str, local_files_only: bool = False, **named: Any) -> str:
        if local_files_only:
            raise LocalEntryNotFoundError("not here")
        self.asked.append({"name": name, "revision": revision, **named})
        if revision not in self.revisions:
            raise RevisionNotFoundError("no such revision", response=SimpleNamespace(headers={}, request=None))
        shutil.copytree(self.revisions[revision], named["local_dir"], dirs_exist_ok=True)
        return str(named["local_dir"])


def test_a_download_goes_into_a_folder_of_its_own_which_is_removed_whatever_happens(tmp_path, monkeypatch, saved):
    hub = Hub({"step1": saved}, monkeypatch)
    work = tmp_path / "work"
    work.mkdir()
    (work / "rest").touch()  # of a run that was killed
    with checkpoint_folder("lab/tiny", 1, work, download=True) as folder:
        assert folder == work and not (work / "rest").exists()
        assert read_weights(folder) == read_weights(saved)
    assert not work.exists()
    assert [(one["name"], one["revision"]) for one in hub.asked] == [("lab/tiny", "step1")]
    assert not any(pattern.endswith((".bin", ".pt", ".py", "*")) for pattern in hub.asked[0]["allow_patterns"])
    Hub({"step1": saved}, monkeypatch)
    with pytest.raises(ZeroDivisionError), checkpoint_folder("lab/tiny", 1, tmp_path / "work", download=True):
        raise ZeroDivisionError
    assert not (tmp_path / "work").exists()


def test_a_revision_that_the_hub_lacks_is_a_fault_and_a_download_that_fails_an_error(tmp_path, monkeypatch):
    Hub({}, monkeypatch)
    with checkpoint_folder("lab/tiny", 1, tmp_path / "work", download=True) as folder:
        assert faults(read_weights(folder), {}) == (Fault("is not there, or holds no safetensors file", unusable=True),)

    def fail(name: str, local_files_only: bool = False, **named: Any) -> str:
        raise LocalEntryNotFoundError("no") if local_files_only else OSError("the line is dead")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(SpecError, match=r"lab/tiny at step1 cannot be downloaded: the line is dead; .*run it again"):
        checkpoint_folder("lab/tiny", 1, tmp_path / "work", download=True).__enter__()
    assert not (tmp_path / "work").exists()


def test_weights_without_faults_and_a_damaged_file(saved):
    found = read_weights(saved)
    assert (found.precision, found.declared, found.not_finite) == ("float16", "float16", ())
    assert all(load_file(saved / "model.safetensors")[name].ndim >= 2 for name in found.matrices)
    assert "gpt_neox.layers.2.mlp.dense_h_to_4h.weight" in found.matrices
    assert len(set(found.matrices.values())) == len(found.matrices)
    assert faults(found, {}) == ()
    (saved / "model.safetensors").write_bytes(b"no header")
    with pytest.raises(SpecError, match=r"model\.safetensors is damaged"):
        read_weights(saved)


def test_the_weights_of_another_step_are_named_in_any_precision(saved):
    first = read_weights(saved)
    other = rewrite(saved, lambda weights: {name: 2 * value for name, value in weights.items()})
    again = rewrite(saved, lambda weights: {name: value.float() / 2 for name, value in weights.items()})
    assert faults(other, {0: first}) == ()
    assert faults(again, {0: first, 1: other}) == (
        Fault("has the weights of step 0", unusable=True),
        Fault("is stored in float32, and its configuration says float16", unusable=False),
    )


def test_zeros_of_either_sign_are_the_same_and_old_constants_are_no_weights(saved):
    zero = "gpt_neox.layers.0.mlp.dense_4h_to_h.weight"
    first = rewrite(saved, lambda weights: {**weights, zero: torch.zeros_like(weights[zero])})
    second = rewrite(saved, lambda weights: {**weights, zero: -weights[zero]})
    assert load_file(saved / "model.safetensors")[zero].signbit().all()
    assert first.matrices == second.matrices
    before = read_weights(saved)
    constants = {
        "gpt_neox.layers.0.attention.masked_bias": torch.tensor(-torch.inf),
        "gpt_neox.layers.0.attention.bias": torch.ones(1, 1, 4, 4),
        "gpt_neox.layers.0.attention.rotary_emb.inv_freq": torch.ones(2),
    }
    assert rewrite(saved, lambda weights: {**weights, **constants}) == before


def test_matrices_of_another_step_and_values_that_are_not_finite_are_named(saved):
    first = read_weights(saved)
    mixed = rewrite(
        saved, lambda weights: {name: value if "embed_in" in name else 2 * value for name, value in weights.items()}
    )
    (fault,) = faults(mixed, {7: first})
    count = len(first.matrices)
    assert fault == Fault(f"1 of its {count} matrices equal step 7, such as gpt_neox.embed_in.weight", False)

    def spoil(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        weights["gpt_neox.final_layer_norm.bias"][3] = torch.nan
        weights["gpt_neox.embed_in.weight"][0, 0] = torch.inf
        return weights

    (fault,) = faults(rewrite(saved, spoil), {})
    assert fault == Fault("has values that are not finite, in gpt_neox.embed_in.weight and 1 more", unusable=True)
