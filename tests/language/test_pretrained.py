"""Opening models: from folders, the hub's cache and servers' addresses, without the network, and what is refused."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import anchorlab as al
from anchorlab.errors import SpecError
from anchorlab.language import wrap
from anchorlab.language.attention import refuse_unknown
from anchorlab.language.endpoint import address_of, is_address, read_address
from anchorlab.language.pretrained import pretrained
from tests.language.tiny import CONFIGS, hugging_face, tokens, transformers


@pytest.fixture
def empty_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the hub that holds nothing."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_a_folder_opens_with_its_own_logits(tmp_path: Path, name: str) -> None:
    model = hugging_face(name)
    model.save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        expected = model(tokens(), use_cache=False).logits
        opened = al.pretrained(tmp_path / "saved")
        assert torch.equal(opened(tokens()), expected)
    assert opened.tokenizer is None
    with pytest.raises(SpecError, match="tokenizer: the model has none; save its files with the weights"):
        opened.tokenise(["a text"])


@pytest.mark.usefixtures("no_network")
def test_a_revision_opens_from_the_cache_of_the_hub(empty_hub: Path) -> None:
    """Two revisions of one repository, laid out as the hub's client lays out its cache."""
    for commit, revision in (("a" * 40, "step1"), ("b" * 40, "step2")):
        repository = empty_hub / "models--lab--tiny"
        hugging_face("gpt_neox-parallel").save_pretrained(repository / "snapshots" / commit)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / revision).write_text(commit)
    weights = repository / "snapshots" / ("b" * 40) / "model.safetensors"
    changed = {name: value * 2 for name, value in load_file(weights).items()}
    save_file(changed, weights, metadata={"format": "pt"})
    first, second = (pretrained("lab/tiny", revision) for revision in ("step1", "step2"))
    assert torch.equal(second.ln_final.w, 2 * first.ln_final.w)
    with pytest.raises(SpecError, match=r"lab/tiny at step3 .*--download"):
        pretrained("lab/tiny", "step3")
    (weights.parent / "adapter_config.json").write_text('{"base_model_name_or_path": "lab/other"}')
    with pytest.raises(SpecError, match=r"model: lab/tiny holds an adapter"):
        pretrained("lab/tiny", "step2")
    assert pretrained("lab/tiny", "step1").ln_final.w.equal(first.ln_final.w)


@pytest.mark.usefixtures("no_network", "empty_hub")
def test_nothing_is_fetched_unless_asked() -> None:
    with pytest.raises(SpecError, match=r"model: EleutherAI/pythia-70m is not on this machine; .*--download"):
        pretrained("EleutherAI/pythia-70m")


@pytest.mark.usefixtures("empty_hub")
def test_the_network_is_asked_only_on_demand(no_network: None) -> None:
    with pytest.raises(AssertionError, match="opened a socket"):
        try:
            pretrained("EleutherAI/pythia-70m", download=True)
        except SpecError as error:  # the hub's client may turn the refusal into its own error
            raise AssertionError("opened a socket") from error


def test_a_place_without_safetensors_is_named_and_pickled_weights_are_not_read(tmp_path):
    for name, said in (
        ("./nowhere", "there is no folder"),
        ("/nowhere/at/all", "there is no folder"),
        ("missing.gguf", "there is no file missing.gguf"),
        (tmp_path, "holds no safetensors file"),
    ):
        with pytest.raises(SpecError, match=said):
            pretrained(name)
    CONFIGS["llama"].save_pretrained(tmp_path)
    torch.save(hugging_face("llama").state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(SpecError, match="holds pickle weights only; save it with save_pretrained"):
        pretrained(tmp_path)


def test_a_revision_of_a_folder_an_unknown_precision_and_an_unknown_device_are_refused(tmp_path):
    hugging_face("llama").save_pretrained(tmp_path)
    with pytest.raises(SpecError, match=r"^revision: .* is not on the hub, and has none; leave it out"):
        pretrained(tmp_path, "step1000")
    with pytest.raises(SpecError, match=r"^precision: .*'bf16'.*bfloat16"):
        pretrained(tmp_path, precision="bf16")
    with pytest.raises(SpecError, match=r"^device: 'cdua' does not exist; use cpu or cuda$"):
        pretrained(tmp_path, device="cdua")


@pytest.mark.parametrize("kind", ["bert", "gemma2", "mixtral", "t5"])
def test_architectures_that_are_not_understood_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(SpecError, match=f"unknown architecture '{kind}'"):
        pretrained(tmp_path)


def test_settings_and_weights_that_no_site_shows_are_refused():
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=9, reorder_and_upcast_attn=True)
    with pytest.raises(SpecError, match=r"model\.reorder_and_upcast_attn"):
        wrap(transformers.AutoModelForCausalLM.from_config(config))
    model = hugging_face("llama")
    model.base_model.layers[0].extra = torch.nn.Linear(2, 2)
    with pytest.raises(SpecError, match="has other weights than a 'llama' model"):
        wrap(model)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("gpt2", {"n_layer": -1}, r"^model\.n_layer: is -1, not a number from 1"),
        ("gpt2", {"embd_pdrop": math.nan}, r"^model: model does not run: dropout probability"),
        ("gemma3_text", {"sliding_window": None}, r"^model: model does not run: .*sliding_window"),
        ("llama", {"rms_norm_eps": -0.5}, r"^model: the logits of model are NaN"),
    ],
)
def test_a_model_that_does_not_run_is_one_line(name: str, settings: dict[str, object], said: str) -> None:
    config = type(CONFIGS[name])(**CONFIGS[name].to_diff_dict())
    for setting, value in settings.items():
        setattr(config, setting, value)
    with pytest.raises(SpecError, match=said):
        wrap(transformers.AutoModelForCausalLM.from_config(config))


@pytest.mark.parametrize("argument", ["softcap", "s_aux", "something_new"])
def test_arguments_of_attention_that_are_not_understood_are_refused(argument):
    with pytest.raises(SpecError, match=f"takes '{argument}'"):  # the first that has a value
        refuse_unknown({"softcap": None, "use_cache": False, argument: torch.ones(1), "sliding_window": 4})


@pytest.mark.parametrize("where", [(slice(None), slice(None)), (1, slice(None)), (slice(None), 10)])
def test_a_model_whose_logits_would_differ_is_refused(where: tuple[slice | int, slice | int]) -> None:
    """An error of the attention in place of transformers' own: everywhere, in a later sequence, at a later token."""
    model = hugging_face("llama")

    def wrong(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
        changed = output.clone()
        changed[where] += float(model.config._attn_implementation != "eager")
        return changed

    model.base_model.norm.register_forward_hook(wrong)
    with pytest.raises(SpecError, match="its logits differ"):
        wrap(model)


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(SpecError, match=r"pip install 'anchorlab\[language\]'"):
        pretrained("smollm2")


URL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("Qwen/Qwen3-0.6B", f"{URL}#Qwen/Qwen3-0.6B"),
        ("llama3.1:8b", f"{URL}#llama3.1:8b"),
        ("@cf/meta/llama", f"{URL}#%40cf/meta/llama"),
        ("a,b", f"{URL}#a%2Cb"),
        ("50%#1", f"{URL}#50%25#1"),
        ("%40", f"{URL}#%2540"),
        ("C:\\models\\é", f"{URL}#C:\\models\\é"),
    ],
)
def test_an_address_keeps_the_name(name, address):
    assert address_of(f" {URL}/ ", name) == address == address_of(URL, name)
    assert is_address(address)
    assert read_address(address) == (URL, name)


def test_what_is_an_address_and_which_model_it_names():
    assert read_address(f"{URL}#@cf/meta/llama") == (URL, "@cf/meta/llama")
    for name in ("smollm2", "Qwen/Qwen3-0.6B", "./folder#1", "C:\\models\\x.gguf"):
        assert not is_address(name)
    for url in ("https://host", "http://[::1]:8000/v1", "http://my_host.local:80/a/v1", "http://host/@a/v1"):
        assert read_address(address_of(url, "m"))[1] == "m"
    for address in (URL, f"{URL}#"):
        with pytest.raises(SpecError, match=r"^model: the address names no model; write http://HOST:PORT/v1#NAME$"):
            read_address(address)


@pytest.mark.parametrize(
    "url",
    [
        "", "127.0.0.1:8000", "localhost/v1", "ftp://host/v1", "http:///v1", "http://host:port/v1", "http://[::1/v1",
        "http://host:999999/v1", f"{URL}?key=hidden", f"{URL}#hidden", "http://hidden@host/v1",
        "http://me:hidden@host/v1",
    ],
)  # fmt: skip
def test_what_is_no_address(url):
    with pytest.raises(SpecError, match=r"^endpoint: is not an address; write http://HOST:PORT/v1") as error:
        address_of(url, "tiny")
    assert "hidden" not in str(error.value)
