"""Generate text under interventions, and record what the model computes at each generated token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.look.access import Access, evaluating
from anchorlab.lens.look.inputs import as_list
from anchorlab.lens.look.intervene import Moment, intervene
from anchorlab.lens.look.interventions import BORROWING, Intervention, Operand
from anchorlab.lens.look.padding import PLACES
from anchorlab.models.precision import at_least_float32
from anchorlab.rng import torch_generator


@runtime_checkable
class Speaking(Protocol):
    """A model that reads text and keeps what it has read in a cache, such as `LanguageModel`."""

    tokenizer: Any
    context: int

    def tokenise(self, texts: Sequence[str], special: bool = True) -> Any:
        """Return texts as token ids with lengths."""

    def empty_cache(self) -> Any:
        """Return a cache that holds no token yet."""


@dataclass(frozen=True)
class Generation:
    """What a model has generated after each text.

    Fields
        said: the generated text, without the token that ends it
        ids: the generated tokens of each text, with the token that ends it
        logits: the logits that each generated token was chosen from, `[token output]` for each text
        record: by site, the values at the positions that predict each generated token. `[token ...]` for each text,
            without the axes batch and position; an attention pattern is `[token head key]`, padded with zeros
    """

    said: tuple[str, ...]
    ids: tuple[Int[Tensor, "token"], ...]
    logits: tuple[Float[Tensor, "token output"], ...]
    record: Mapping[str, tuple[Shaped[Tensor, "token *axes"], ...]]


def generate(
    model: Speaking,
    texts: str | Sequence[str],
    tokens: int = 20,
    interventions: Intervention | Sequence[Intervention] = (),
    record: str | Sequence[str] = (),
    *,
    chat: bool = False,
    temperature: float = 0.0,
    seed: int = 0,
    cache: bool = True,
) -> Generation:
    """Continue texts token by token under interventions, until each text ends or has enough tokens.

        quiet = al.Intervention(site="blocks.23.attn.hook_z", where={"head": 3}, rule="zero")
        generate(model, ["Anna and Ben went to"], 10, [quiet], ["blocks.*.hook_resid_post"]).said

    Interventions change the values of every position: of the text, and of each generated token. Texts of one length run
    together.

    Args:
        model: a pretrained model with a tokenizer.
        tokens: the most tokens to generate for each text; fewer if the model's context is full earlier.
        interventions: as in `look`, but without rules that take values from other sequences (`mean`, `resample`,
            `patch`), and without a choice of positions.
        record: sites, or patterns of these, whose values are recorded.
        chat: whether each text is put to the model as a user's turn, in the tokenizer's chat template.
        temperature: 0 takes the likeliest token; otherwise tokens are drawn from the probabilities of
            `logits / temperature`.
        seed: the seed of the draws; each text has draws of its own.
        cache: whether keys and values of earlier tokens are kept, which changes results by rounding; False reads the
            whole text again for every token.
    """
    if not isinstance(model, Speaking) or model.tokenizer is None:
        raise SpecError("model", "has no tokenizer", "give a pretrained model with its tokenizer")
    texts = as_list(texts, str, "texts", "give texts")
    if tokens < 1 or temperature < 0:
        field, value = ("tokens", tokens) if tokens < 1 else ("temperature", temperature)
        raise SpecError(field, f"{value} is too small", "give at least 1" if tokens < 1 else "give 0 or more")
    changes = _checked(as_list(interventions, Intervention, "interventions", "write al.Intervention(...)"))
    access = Access(model)  # type: ignore[arg-type]
    recorded = {
        site
        for at, name in enumerate(as_list(record, str, "record", "give names of sites"))
        for site in access.resolve(name, f"record.{at}")
    }
    for at, change in enumerate(changes):
        access.resolve(change.site, f"interventions.{at}.site")
    prompts = [_turn(model.tokenizer, text) for text in texts] if chat else texts
    read = model.tokenise(prompts)
    found: dict[int, _Said] = {}
    idle = {at for at, each in enumerate(changes) if not each.may_do_nothing}
    for length in sorted({*read.lengths.tolist()}):
        rows = (read.lengths == length).nonzero().flatten()
        one = _Generating(model, access, changes, recorded, temperature, cache, idle)
        random = [torch_generator(seed, "generate", row) for row in rows.tolist()]
        found |= dict(zip(rows.tolist(), one.run(read.inputs[rows, :length], tokens, random), strict=True))
    for at in sorted(idle):
        problem = f"interventions.{at} ({changes[at].describe()}) changed nothing"
        raise SiteError(f"{problem}; set may_do_nothing to allow it")
    every, logits, records = zip(*(found[row] for row in range(len(texts))), strict=True)
    end = model.tokenizer.eos_token_id
    said = [ids[:-1] if len(ids) and int(ids[-1]) == end else ids for ids in every]
    asked = [row[:length].tolist() for row, length in zip(read.inputs, read.lengths, strict=True)]
    decoded = tuple(_added(model.tokenizer, *each) for each in zip(asked, said, strict=True))
    by_site = {site: tuple(one[site] for one in records) for site in access.names if site in recorded}
    return Generation(decoded, every, logits, by_site)


def _checked(interventions: Sequence[Intervention]) -> Sequence[Intervention]:
    for at, one in enumerate(interventions):
        if one.rule in BORROWING:
            problem = f"{one.rule!r} takes values from other sequences"
            raise SpecError(f"interventions.{at}.rule", problem, "choose a rule with an operand, or zero")
        operand = one.operand.axes if isinstance(one.operand, Operand) else ()
        for axis in (*PLACES, "batch"):
            if axis in one.where or axis in one.at or axis in operand:
                problem = f"tells places of the axis {axis!r} apart"
                raise SpecError(f"interventions.{at}", problem, "change all positions of all texts alike")
    return interventions


def _added(tokenizer: Any, read: list[int], ids: Int[Tensor, "token"]) -> str:
    """Return the text that tokens add to those read: alone, they lose a first space with some tokenizers."""
    before, whole = str(tokenizer.decode(read)), str(tokenizer.decode([*read, *ids.tolist()]))
    if not whole.startswith(before):  # a tokenizer that changes what it has decoded, such as "do not" to "don't"
        return str(tokenizer.decode(ids.tolist()))
    return whole.removeprefix(before)


def _turn(tokenizer: Any, text: str) -> str:
    if getattr(tokenizer, "chat_template", None) is None:
        raise SpecError("chat", "the tokenizer has no chat template", "give texts as the model reads them")
    turns = [{"role": "user", "content": text}]
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


_Said = tuple[Int[Tensor, "token"], Float[Tensor, "token output"], Mapping[str, Shaped[Tensor, "token *axes"]]]


@dataclass
class _Generating:
    """Generates continuations of several texts of the same length."""

    model: Any
    access: Access
    interventions: Sequence[Intervention]
    recorded: set[str]
    temperature: float
    cache: bool
    idle: set[int]

    def __post_init__(self) -> None:
        self.values: dict[str, list[Tensor]] = {site: [] for site in self.recorded}
        self.missing = {each.site for each in self.interventions} | self.recorded

    def run(self, inputs: Int[Tensor, "text position"], tokens: int, random: Sequence[torch.Generator]) -> list[_Said]:
        device = next(self.model.parameters()).device
        ids, end = inputs.to(device), self.model.tokenizer.eos_token_id
        past = self.model.empty_cache() if self.cache else None
        logits: list[Tensor] = []
        steps = min(tokens, self.model.context - ids.shape[1])
        if steps < 1:
            raise SpecError("texts", f"have {ids.shape[1]} tokens, which fill the model's context", "shorten them")
        unread, ended = ids, torch.zeros(len(ids), dtype=torch.bool, device=device)
        with evaluating(self.model):
            for _ in range(steps):
                last = torch.tensor([unread.shape[1] - 1], device=device)
                given = {"past": past} if self.cache else {}
                output = at_least_float32(self.model(unread, last, tap=self._tap, **given)[:, 0])
                if self.missing:
                    raise SiteError(f"site {min(self.missing)!r} was not visited by the model")
                logits.append(output.cpu())
                token = self._next(logits[-1], random).to(device)
                ids = torch.cat([ids, token[:, None]], dim=1)
                ended |= token == end if end is not None else torch.zeros_like(ended)
                if bool(ended.all()):
                    break
                unread = token[:, None] if self.cache else ids
        said = ids[:, inputs.shape[1] :].cpu()
        return [self._of_text(row, said[row], torch.stack(logits, dim=1)[row], end) for row in range(len(said))]

    def _next(self, logits: Float[Tensor, "text output"], random: Sequence[torch.Generator]) -> Int[Tensor, "text"]:
        if self.temperature == 0:
            return logits.argmax(dim=-1)
        shares = (logits / self.temperature).softmax(dim=-1)
        return torch.cat([torch.multinomial(one, 1, generator=each) for one, each in zip(shares, random, strict=True)])

    def _tap(self, site: str, value: Tensor) -> Tensor:
        axes = self.access.axes(site, value)
        self.missing.discard(site)
        moment = Moment(0, 1, range(len(value)), len(value))
        for at, one in enumerate(self.interventions):
            if one.site == site:
                before = value
                value = intervene(one, value, axes, moment, name=f"interventions.{at}")
                if at in self.idle and not torch.equal(before, value):
                    self.idle.remove(at)
        if site in self.recorded:
            place = next(axis for axis in PLACES if axis in axes)
            self.values[site].append(value.select(axes.index(place), -1).cpu().clone())
        return value

    def _of_text(self, row: int, ids: Tensor, logits: Tensor, end: int | None) -> _Said:
        """Return the tokens, logits and recorded values of one text, up to the token that ends it."""
        ends = (ids == end).nonzero().flatten() if end is not None else ids[:0]
        count = int(ends[0]) + 1 if len(ends) else len(ids)
        record = {}
        for site, values in self.values.items():
            own = [value[row] for value in values[:count]]
            size = own[-1].shape[-1]  # keys become more with every token
            record[site] = torch.stack([torch.nn.functional.pad(each, (0, size - each.shape[-1])) for each in own])
        return ids[:count], logits[:count], record
