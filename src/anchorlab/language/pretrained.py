"""Open a pretrained language model from the hub's cache, a folder or a GGUF file."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch

from anchorlab.errors import AnchorlabError, SpecError, from_extra, is_out_of_memory
from anchorlab.language.architectures import ARCHITECTURES, Architecture
from anchorlab.language.attention import ATTENTION, register
from anchorlab.language.checkpoints import CONSTANTS
from anchorlab.language.model import LanguageModel
from anchorlab.language.model_folder import check_files
from anchorlab.language.packaged import PACKAGED, packaged_folder
from anchorlab.models.gpu import existing_device
from anchorlab.plain import parse_json, read_data
from anchorlab.printable import printable
from anchorlab.spec import check_known, unknown_name
from anchorlab.training.saved_model import SPECIFICATION

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Precision = Literal["float32", "float64", "bfloat16", "float16"]

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_INDEX = "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"
_REFUSED = ("quantization_config", "transformers_weights")  # quantised weights, or files that nothing checks
_SIZES = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size", "max_position_embeddings")
_NAMED = 3  # names that a message gives of each kind
_PROBE = (2, 11)  # sequences and tokens: enough to show a wrong mask, window, position or layout of shared keys


def pretrained(
    name: str | Path,
    revision: str | None = None,
    *,
    download: bool = False,
    precision: Precision = "float32",
    device: str = "cpu",
) -> LanguageModel:
    """Open a pretrained language model, for `look`, `effects` and every other instrument of the lens.

        model = al.pretrained("EleutherAI/pythia-160m", revision="step1000", download=True)
        model = al.pretrained("smollm2")  # after `make language`

    Only safetensors and GGUF files are read, and no code from the model's repository runs. The files must hold exactly
    the weights of the model. Before the model is returned, its logits on a few tokens are compared with Hugging Face's
    own.

    Args:
        name: a name on Hugging Face's hub, a local folder, a `.gguf` file, or the name of a packaged model: `smollm2`,
            which tests use, or `gemma3` (after `make language-2`).
        revision: a branch, tag or commit of the hub's repository, such as a checkpoint of Pythia.
        download: whether to download files missing from the hub's cache; False: no network access.
        precision: the precision of the weights.
        device: the device of the weights, such as `cpu` or `cuda`.

    Errors: `SpecError` for a missing library, a missing name, revision or file, weights in pickle files only, weights
    that are missing, have another shape or are left over, an unsupported architecture or setting, a revision of a model
    that is not from the hub, an unknown precision, and a device that does not exist.
    """
    if precision not in get_args(Precision):
        raise unknown_name("precision", str(precision), get_args(Precision), "precision")
    existing_device(device)
    with from_extra("transformers", "language"):
        import transformers
    register()
    place = _place(str(name))
    if revision and place.local:
        raise SpecError("revision", f"{name} is not on the hub, and has none", "leave it out")
    options = {"revision": revision} if revision else {}
    options |= {"gguf_file": place.file} if place.file else {}
    at = f"{place.source} at {revision}" if revision else place.source
    explained = partial(_explained, at, "cannot be opened", "give another model", place.local)
    with quiet(), _network(allowed=download and not place.local):
        with explained():
            config = transformers.AutoConfig.from_pretrained(place.source, trust_remote_code=False, **options)
        architecture = _architecture(config)
        config._attn_implementation = "eager"  # the configuration could name a kernel on the hub, which is code
        _check_adapter(place, revision)
        _check_index(place, revision)
        with explained():
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                place.source,
                dtype=getattr(torch, precision),
                attn_implementation="eager",
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # the check below names them
                **({} if place.file else {"use_safetensors": True, "config": config}),
                **options,
            )
            others = _left_in_gguf(Path(place.source, place.file), model) if place.file else []
        _check_loaded(str(name), report, others)
        tokenizer = None
        with suppress(Exception):  # a model is also read without a tokenizer
            tokenizer = transformers.AutoTokenizer.from_pretrained(place.source, trust_remote_code=False, **options)
        if tokenizer is not None and tokenizer.get_vocab().keys() <= {*tokenizer.all_special_tokens}:
            tokenizer = None  # transformers makes an empty one for a folder without a tokenizer's files
    return wrap(model.to(device), tokenizer, str(name), architecture)


def wrap(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    name: str = "model",
    architecture: Architecture | None = None,
) -> LanguageModel:
    """Return a model of transformers, such as one made from a configuration, as a `LanguageModel`.

    The given model itself is switched to this package's attention, which computes the same values.

    Errors: `SpecError` for an unsupported architecture or setting, for a model that does not run, and if the logits
    here differ from the model's own.
    """
    register()
    architecture = _architecture(model.config) if architecture is None else architecture
    if not getattr(type(model), "_supports_attention_backend", False):
        raise SpecError("model", f"{type(model).__name__} does not let its attention be replaced", "open another one")
    model.eval()
    sequences, length = _PROBE[0], min(_PROBE[1], int(model.config.max_position_embeddings))
    tokens = torch.arange(sequences * length, device=model.device).reshape(sequences, length) % model.config.vocab_size
    with torch.no_grad(), _explained(name, "does not run", "check its configuration"):
        model.set_attn_implementation("eager")
        expected = model(input_ids=tokens, use_cache=False).logits
        if expected.isnan().any():
            raise SpecError("model", f"the logits of {name} are NaN", "check its weights and its configuration")
        model.set_attn_implementation(ATTENTION)
        made = LanguageModel(name, model, tokenizer, architecture).eval()
        if not torch.equal(made(tokens), expected):
            problem = f"its logits differ from Hugging Face's by {float((made(tokens) - expected).abs().max()):.1e}"
            raise SpecError("model", problem, "open a model of an architecture as published")
    return made


class _Place(NamedTuple):
    """The location of a model: the `source` for transformers, the GGUF `file` in it, and whether it is `local`."""

    source: str
    file: str | None = None
    local: bool = True


def _place(name: str) -> _Place:
    if name in PACKAGED:
        return _Place(str(packaged_folder(name)))
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise SpecError("model", f"there is no file {name}", "give the path of a GGUF file")
        check_files(path.parent, "model")
        return _Place(str(path.parent), path.name)
    if path.is_dir():
        if (path / SPECIFICATION).is_file():
            raise SpecError("model", f"{name} holds a model of anchorlab", "open it with al.load_pretrained")
        check_files(path, "model")
        if not any(path.glob("*.safetensors")):
            pickles = any(found for pattern in _PICKLES for found in path.glob(pattern))
            problem = f"{name} holds pickle weights only" if pickles else f"{name} holds no safetensors file"
            raise SpecError("model", problem, "save it with save_pretrained, which writes safetensors")
        return _Place(str(path))
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise SpecError("model", f"there is no folder {name}", "give a folder, a .gguf file or a name on the hub")
    return _Place(name, local=False)


def _architecture(config: Any) -> Architecture:
    """Return the table of a configuration. Errors: `SpecError` for an unsupported architecture or setting."""
    kind = str(config.model_type)
    check_known("model", kind, ARCHITECTURES, "architecture")
    found = ARCHITECTURES[kind]
    for setting in (*found.refused, *_REFUSED):
        if getattr(config, setting, False):
            raise SpecError(f"model.{setting}", "is not understood", "open a model without it")
    for size in _SIZES:
        value = getattr(config, size, 1)
        if not isinstance(value, int) or value < 1:
            setting = config.attribute_map.get(size, size)
            raise SpecError(f"model.{setting}", f"is {value!r}, not a number from 1", "give another model")
    return found


def _check_adapter(place: _Place, revision: str | None) -> None:
    """Raise `SpecError` for an adapter, because `peft` would open the other model that the adapter names."""
    try:
        _file(place, _ADAPTER, revision).lstat()
    except OSError:
        return
    raise SpecError("model", f"{place.source} holds an adapter ({_ADAPTER})", "merge it into its model, and give that")


def _check_index(place: _Place, revision: str | None) -> None:
    """Raise `SpecError` if the index of the weights names anything but safetensors files in its own folder."""
    try:
        named = parse_json(read_data(_file(place, _INDEX, revision), follow=True))["weight_map"].values()
    except OSError:
        return  # all weights are in one file, if there are any
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SpecError("model", f"{place.source}: {_INDEX} is damaged", "give another model") from None
    for name in named:
        if not (isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name):
            problem = f"{_INDEX} names {printable(str(name)):.80}, which is no safetensors file in its folder"
            raise SpecError("model", f"{place.source}: {problem}", "give another model")


def _check_loaded(source: str, report: Mapping[str, Collection[Any]], others: Sequence[str]) -> None:
    """Raise `SpecError` if weights were missing in a model's files, had another shape, or were left over.

    transformers draws missing weights at random and only warns. A weight that the model ties to another one may be
    missing. Constants that older versions of transformers saved, such as masks, may be left over.
    `others` are further tensors in the files that the model does not read.
    """
    left = sorted({*map(str, report["unexpected_keys"]), *others})
    shapes = {str(name): f"{tuple(found)} in place of {tuple(own)}" for name, found, own in report["mismatched_keys"]}
    problems = (
        ("lacks", sorted(map(str, report["missing_keys"]))),
        ("has in another shape", [f"{name} {shape}" for name, shape in sorted(shapes.items())]),
        ("holds what the model does not read:", [name for name in left if not name.endswith(CONSTANTS)]),
    )
    if said := "; ".join(f"{problem} {_listed(names)}" for problem, names in problems if names):
        raise SpecError("model", f"{source} {said}", "give a folder that holds the weights of its own configuration")


def _left_in_gguf(path: Path, model: "PreTrainedModel") -> list[str]:
    """Return the tensors of a GGUF file that transformers passes over without a report."""
    from gguf import GGUFReader
    from transformers.modeling_gguf_pytorch_utils import TensorProcessor, get_gguf_hf_weights_map

    known = get_gguf_hf_weights_map(model, TensorProcessor())
    return [tensor.name for tensor in GGUFReader(path).tensors if tensor.name not in known]


def _listed(names: Sequence[str]) -> str:
    """Return the first names, made printable: they come from files of other people."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(f"{printable(name):.80}" for name in names[:_NAMED]) + more


def _file(place: _Place, name: str, revision: str | None) -> Path:
    """Return the path of a model's file, in its folder or the hub's cache. Errors: `OSError` if it is missing."""
    if place.local:
        return Path(place.source, name)
    from huggingface_hub import constants, hf_hub_download

    offline = constants.HF_HUB_OFFLINE
    return Path(hf_hub_download(place.source, name, revision=revision, local_files_only=offline))


@contextmanager
def _explained(name: str, failed: str, remedy: str, local: bool = True) -> Iterator[None]:
    """Within `with`, turn the errors of transformers into a `SpecError` of one line with a remedy."""
    try:
        yield
    except AnchorlabError:
        raise
    except Exception as error:  # untrusted files cause errors in several libraries, all with one remedy
        if is_out_of_memory(error):
            raise
        said = printable(" ".join(str(error).split()))
        if isinstance(error, OSError) and not local:
            missing = "offline" in said.lower() or "cached" in said.lower()
            problem = "is not on this machine" if missing else f"{failed}: {said:.160}"
            remedy = "check the name and revision, and allow the download (--download)"
            raise SpecError("model", f"{name} {problem}", remedy) from None
        raise SpecError("model", f"{name} {failed}: {said:.200}", remedy) from None


@contextmanager
def _network(allowed: bool) -> Iterator[None]:
    """Within `with`, keep the hub's client offline unless the network is allowed."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not allowed
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def quiet() -> Iterator[None]:
    """Within `with`, keep transformers from printing its progress and warnings."""
    from transformers.utils import logging as theirs

    level, shown = theirs.get_verbosity(), theirs.is_progress_bar_enabled()
    theirs.set_verbosity(logging.ERROR)
    theirs.disable_progress_bar()
    try:
        yield
    finally:
        theirs.set_verbosity(level)
        if shown:
            theirs.enable_progress_bar()
