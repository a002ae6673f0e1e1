"""Where the packaged language models are kept."""

from pathlib import Path

import pytest

from anchorlab.cache import cache_folder
from anchorlab.errors import SpecError
from anchorlab.language.packaged import packaged_folder


def test_the_cache_is_the_chosen_folder_else_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANCHORLAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    assert cache_folder() == Path("/home/ada/.cache/anchorlab")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch/ada")
    assert cache_folder() == Path("/scratch/ada/anchorlab")
    monkeypatch.setenv("ANCHORLAB_CACHE", "~/models")
    assert cache_folder() == Path("/home/ada/models")


def test_a_model_that_is_not_there_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANCHORLAB_CACHE", str(tmp_path))
    with pytest.raises(SpecError, match=r"smollm2: .* run `make language`,.*convert smollm2`") as caught:
        packaged_folder("smollm2")
    with pytest.raises(SpecError, match=r"gemma3: .* run `make language-2`,.*-part4==1\.0\.0`.*convert gemma3`"):
        packaged_folder("gemma3")
    assert "\n" not in str(caught.value)


def test_the_folder_is_the_one_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANCHORLAB_CACHE", str(tmp_path))
    (tmp_path / "smollm2").mkdir()
    assert packaged_folder("smollm2") == tmp_path / "smollm2"
