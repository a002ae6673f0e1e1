"""Noisy in-context recall: after a trigger comes the sequence's own output token, or noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.random import Generator
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, Example, Token, TraceStep
from anchorlab.tasks.metrics import correct, probability
from anchorlab.tasks.numbers import Numbers
from anchorlab.tasks.recall.evidence import read_evidence
from anchorlab.tasks.recall.markov import MarkovChain, is_table_file, table_chain, table_characters, table_digest
from anchorlab.tasks.registry import register_task, task_family
from anchorlab.tasks.task import Task

_BLOCK = 8192
_EXISTING_NOISE = 2  # '!' of tiny Shakespeare


@dataclass(frozen=True)
class _Block:
    """A block of sequences with what was drawn for it."""

    tokens: Int[np.ndarray, "row following"]  # z_1 .. z_{T+1}
    repeated: Bool[np.ndarray, "row position"]  # a trigger that stood there before
    outputs: Int[np.ndarray, "row token"]  # y of each trigger; -1 for other tokens
    triggers: Int[np.ndarray, "row trigger"]


@register_task("recall/noisy")
@task_family("recall")
class NoisyRecall(Task):
    """The token that followed the trigger earlier in this sequence, though noise often stands there instead.

    A Markov chain z_1 ~ pi_u, z_{t+1} ~ pi_b(.|z_t), but after a trigger comes y with probability 1 - alpha and the
    noise token with probability alpha, where y ~ uniform is drawn afresh for each sequence and each trigger; z_T is a
    trigger. Asked for: z_{T+1} (`scored = "last"`), or what follows every second and later occurrence of a trigger
    (`"after_trigger"`). The split `clean` has alpha = 0.

    length: T.  alpha: the noise.
    source: character bigrams of a packaged text, the file of a table that `anchorlab table` made, or `uniform` tokens.
    tokens: how many uniform tokens there are; a table has its own.
    digest: of a table's file, filled in when the task is made; a file that has changed since is refused.
    noise: the noise token is one more token N (`appended`, the paper's text) or token 2, '!' (`existing`, its code).
        pi_b after an appended noise token is not given by the paper; it is pi_u here.
    triggers: the fixed triggers; 1 is the space, the most frequent character.
    drawn: if not 0, so many triggers are drawn per sequence from pi_u without repetition instead.
    max_scored: the width of the scored positions under `after_trigger`, fixed so that batches have one shape; 0 derives
        it (`width`). The last column is position T, weighted 0 where its trigger is new; where a sequence has more, its
        earliest are dropped.

    With several triggers z_T is one of them, drawn uniformly. A trigger at T-1 is not scored: z_T is set, not drawn.
    The splits are one law at two noise levels, so a noiseless sequence can be drawn in both: `separated` is false.
    Source: truncation paper, section 4 and A.3.
    """

    family: Literal["recall"] = "recall"
    length: int = Field(256, ge=3, le=65_536)
    alpha: float = Field(0.5, ge=0, le=1, allow_inf_nan=False)
    source: str = "shakespeare"
    tokens: int = Field(65, ge=2, le=32_000)
    digest: str = ""
    noise: Literal["appended", "existing"] = "appended"
    triggers: Numbers = Field((1,), min_length=1)
    drawn: int = Field(0, ge=0)
    scored: Literal["last", "after_trigger"] = "last"
    max_scored: int = Field(0, ge=0)

    separated: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _with_digest(cls, given: Any) -> Any:
        if isinstance(given, dict) and is_table_file(source := given.get("source", "")):
            found = table_digest(source)
            if given.get("digest") not in (None, "", found):
                raise SpecError("digest", f"the table {source} has changed since", "make the task anew, without digest")
            return {**given, "digest": found}
        return given

    @model_validator(mode="after")
    def _fits(self) -> "NoisyRecall":
        characters = self._plain_chain.states
        for trigger in self.triggers:
            if not 0 <= trigger < characters:
                raise SpecError("triggers", f"{trigger} is not a token", f"choose from 0..{characters - 1}")
            if self.noise == "existing" and trigger == self.noise_token and not self.drawn:
                raise SpecError("triggers", f"{trigger} is the noise token", "choose another trigger")
        if self.source != "uniform" and self.tokens != type(self).model_fields["tokens"].default:
            raise SpecError("tokens", f"the table {self.source} has {characters} of its own", "leave tokens out")
        if self.noise == "existing" and self.noise_token >= characters:
            raise SpecError(
                "noise", f"{self.noise_token} is not among {characters} tokens", "use appended, or more tokens"
            )
        if len(set(self.triggers)) < len(self.triggers):
            raise SpecError("triggers", f"{list(self.triggers)} names one twice", "name each trigger once")
        possible = int((self._trigger_weights > 0).sum())
        if self.drawn > possible:
            raise SpecError("drawn", f"{self.drawn} is more than the {possible} possible triggers", "lower it")
        if self.max_scored >= self.length:
            raise SpecError("max_scored", f"{self.max_scored} is not below the length {self.length}", "lower it")
        if self.max_scored and self.scored == "last":
            raise SpecError("max_scored", "has a meaning only when scored after triggers", "leave it 0")
        return self

    @cached_property
    def _plain_chain(self) -> MarkovChain:
        return MarkovChain.uniform(self.tokens) if self.source == "uniform" else table_chain(self.source, self.digest)

    @cached_property
    def chain(self) -> MarkovChain:
        """pi_u and pi_b over the whole vocabulary."""
        return self._plain_chain.with_state() if self.noise == "appended" else self._plain_chain

    @property
    def noise_token(self) -> int:
        """The id of the noise token."""
        return self._plain_chain.states if self.noise == "appended" else _EXISTING_NOISE

    @cached_property
    def _trigger_weights(self) -> Float[np.ndarray, "token"]:
        weights = self._plain_chain.initial.copy()
        if self.noise == "existing":
            weights[self.noise_token] = 0.0
        return weights

    @property
    def splits(self) -> tuple[str, ...]:
        """`train`, and `clean` without noise."""
        return ("train", "clean")

    @property
    def shape(self) -> TaskShape:
        """Tokens in, tokens out."""
        return TaskShape("tokens", self.length, self.chain.states, self.chain.states)

    @cached_property
    def width(self) -> int:
        """How many positions are scored in a sequence.

        Under `after_trigger` T p + 6 sqrt(T p (1 - p)) for the long-run share p of triggers, and the last position: the
        positions beyond are those of the few sequences whose y is itself a trigger or leads straight back to one.
        """
        if self.scored == "last":
            return 1
        if self.max_scored:
            return self.max_scored
        share = self._trigger_share()
        spread = math.sqrt(self.length * share * (1 - share))
        return min(self.length - 1, math.ceil(self.length * share + 6 * spread) + 1)

    def _trigger_share(self) -> float:
        """The stationary share of triggers with y averaged over its law; the most frequent ones if drawn."""
        often = np.argsort(-self._trigger_weights, kind="stable")[: self.drawn]
        triggers = often.tolist() if self.drawn else list(self.triggers)
        transition = self.chain.transition.copy()
        transition[triggers] = 0.0
        transition[triggers, : self._plain_chain.states] = (1 - self.alpha) / self._plain_chain.states
        transition[np.ix_(triggers, [self.noise_token])] += self.alpha
        # The lazy chain has the same stationary law and converges even where the chain itself has a period.
        stationary = self.chain.initial @ np.linalg.matrix_power((transition + np.eye(len(transition))) / 2, 4096)
        return float(min(max(stationary[triggers].sum() / stationary.sum(), 0.0), 1.0))

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """`n` fresh sequences.

        Latents: `output` and `trigger` `[batch trigger]`, `noisy` `[batch scored]`: the target is the noise token.
        Errors: `SpecError` for an unknown split.
        """
        self.check_draw(split, n)
        random = generator(seed, "sequences", split)
        alpha = self.alpha if split == "train" else 0.0
        last = self.scored == "last"
        inputs = torch.empty((n, self.length), dtype=torch.int64)
        shape = (n, self.width)
        targets, answers = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        positions, weights = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
        trigger = np.empty((n, self.drawn or len(self.triggers)), dtype=np.int64)
        output = np.empty_like(trigger)
        for start in range(0, n, _BLOCK):
            rows = slice(start, min(start + _BLOCK, n))
            block = self._draw(random, rows.stop - rows.start, alpha)
            inputs.numpy()[rows] = block.tokens[:, :-1]
            positions[rows], weights[rows] = self._scored(block.repeated)
            asked = np.take_along_axis(block.tokens, positions[rows], axis=1)
            targets[rows] = np.take_along_axis(block.tokens, positions[rows] + 1, axis=1)
            answers[rows] = np.take_along_axis(block.outputs, asked, axis=1)
            trigger[rows] = block.triggers
            output[rows] = np.take_along_axis(block.outputs, block.triggers, axis=1)
        return Batch(
            inputs=inputs,
            targets=torch.from_numpy(targets),
            answers=torch.from_numpy(answers),
            positions=torch.tensor([self.length - 1]) if last else torch.from_numpy(positions),
            split=split,
            weights=None if last else torch.from_numpy(weights),
            latents={
                "output": torch.from_numpy(output),
                "trigger": torch.from_numpy(trigger),
                "noisy": torch.from_numpy(targets == self.noise_token),
            },
        )

    def _draw(self, random: Generator, rows: int, alpha: float) -> _Block:
        triggers = self._draw_triggers(random, rows)
        every = np.arange(rows)
        outputs = np.full((rows, self.chain.states), -1, dtype=np.int16)
        outputs[every[:, None], triggers] = random.integers(self._plain_chain.states, size=triggers.shape)
        flat_outputs, seen = outputs.reshape(-1), np.zeros(outputs.size, dtype=bool)
        repeated = np.zeros((rows, self.length), dtype=bool)
        offset = every * self.chain.states
        final = triggers[every, random.integers(triggers.shape[1], size=rows)]
        tokens = np.empty((self.length + 1, rows), dtype=np.int16)
        state = self.chain.initial_table.draw(random, np.zeros(rows, dtype=np.int64))
        for position in range(self.length):
            if position == self.length - 1:
                state = final
            tokens[position] = state
            place = offset + state
            output = flat_outputs.take(place, mode="clip")
            at = np.flatnonzero(output >= 0)  # the rows with a trigger here
            if self.scored == "after_trigger":
                repeated[at, position] = seen[place[at]]
                seen[place[at]] = True
            state = self.chain.transition_table.draw(random, state)
            state[at] = np.where(random.random(at.size) < alpha, self.noise_token, output[at])
        tokens[-1] = state
        return _Block(np.ascontiguousarray(tokens.T), repeated, outputs, triggers)

    def _draw_triggers(self, random: Generator, rows: int) -> Int[np.ndarray, "row trigger"]:
        if not self.drawn:
            return np.tile(np.array(self.triggers, dtype=np.int64), (rows, 1))
        # The largest of independent Gumbel variables shifted by log-weights are a draw without repetition.
        with np.errstate(divide="ignore"):
            keys = np.log(self._trigger_weights) + random.gumbel(size=(rows, len(self._trigger_weights)))
        return np.argsort(-keys, axis=1)[:, : self.drawn]

    def _scored(
        self, repeated: Bool[np.ndarray, "row position"]
    ) -> tuple[Int[np.ndarray, "row scored"], Float[np.ndarray, "row scored"]]:
        """The scored positions in ascending order, the last position in the last column, and their weights."""
        rows, length = repeated.shape
        positions = np.full((rows, self.width), length - 1, dtype=np.int64)
        weights = np.zeros((rows, self.width), dtype=np.float32)
        if self.scored == "last":
            return positions, np.ones_like(weights)
        place = np.flatnonzero(repeated[:, :-2])  # z_T, after the last but one, is set and not drawn
        row, position = np.divmod(place, length - 2)
        counts = np.bincount(row, minlength=rows)
        from_end = np.repeat(np.cumsum(counts), counts) - np.arange(row.size)  # 1 for a row's last
        column = self.width - 1 - from_end
        kept = column >= 0
        cell = row[kept] * self.width + column[kept]
        positions.reshape(-1)[cell] = position[kept]
        weights.reshape(-1)[cell] = 1.0
        weights[:, -1] = repeated[:, -1]
        return positions, weights

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """What followed each scored trigger before, noise aside; known where something but noise did.

        The context of a position is what stands up to it. Of triggers drawn per sequence the inputs show only z_T, so
        just the last column is known then. The trace is that of the last position.
        """
        tokens = inputs.cpu().numpy()
        rows, every = tokens.shape[0], np.arange(tokens.shape[0])
        last = tokens[:, -1]
        told = read_evidence(tokens, self.chain.states, self.noise_token)
        positions, _ = self._scored(told.repeated & self._is_trigger(tokens, tokens[:, -1:]))
        answers = told.recalled[every[:, None], positions]
        known = (answers >= 0) & self._is_trigger(last, last)[:, None]
        if self.drawn > 1:
            known[:, :-1] = False
        found = told.source[every, last]
        trace = (
            TraceStep("trigger", torch.full((rows,), self.length - 1), torch.from_numpy(last)),
            TraceStep("earlier trigger", torch.from_numpy(np.maximum(found, 0) - 1), torch.from_numpy(last)),
            TraceStep("output", torch.from_numpy(found), torch.from_numpy(told.follower[every, last])),
        )
        return Answer(torch.from_numpy(answers), torch.from_numpy(known), trace)

    def roles(self, batch: Batch) -> dict[str, Int[Tensor, "batch scored"]]:
        """`asked`, the scored triggers; `output`, what first followed each before, noise aside; `earlier trigger`."""
        tokens = batch.inputs.cpu().numpy()
        asked = batch.positions.expand(len(batch), -1)
        if batch.weights is not None:
            asked = asked.where(batch.weights > 0, -1)
        source = torch.from_numpy(read_evidence(tokens, self.chain.states, self.noise_token).source)
        output = source.gather(1, batch.inputs.cpu().gather(1, asked.clamp(min=0)))
        output = output.where((asked >= 0) & (output <= asked), -1)
        return {"earlier trigger": torch.where(output >= 0, output - 1, -1), "output": output, "asked": asked}

    def ideal(self, inputs: Int[Tensor, "batch position"]) -> Float[Tensor, "batch scored output"]:
        """The exact law of what follows each scored trigger, from what followed it before: Bayes' rule on y.

        A token other than noise gives y away. Until then every y is as likely, but that with `noise = "existing"` each
        noise after the trigger speaks for y being the noise token itself.
        """
        tokens = inputs.cpu().numpy()
        told = read_evidence(tokens, self.chain.states, self.noise_token)
        positions, _ = self._scored(told.repeated & self._is_trigger(tokens, tokens[:, -1:]))
        every = np.arange(len(positions))[:, None]
        recalled, noises = told.recalled[every, positions], told.noises[every, positions]
        characters = self._plain_chain.states
        posterior = np.zeros((*positions.shape, self.chain.states))
        posterior[..., :characters] = 1.0
        if self.noise == "existing":
            posterior[..., :characters] = (self.alpha**noises)[..., None]
            posterior[..., self.noise_token] = 1.0
        posterior[recalled >= 0] = np.eye(self.chain.states)[recalled[recalled >= 0]]
        posterior /= posterior.sum(axis=-1, keepdims=True)
        posterior *= 1 - self.alpha
        posterior[..., self.noise_token] += self.alpha
        return torch.from_numpy(posterior).float()

    def _is_trigger(self, token: Int[np.ndarray, "row ..."], last: Int[np.ndarray, "row ..."]) -> np.ndarray:
        """Where a token is known to be a trigger: a fixed one, or the one that ends the sequence."""
        return token == last if self.drawn else np.isin(token, self.triggers)

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """1 (clean) where no known trigger is followed by noise, 0 (train) where one is, -1 where no law allows it."""
        tokens = inputs.cpu().numpy()
        rows = tokens.shape[0]
        if tokens.shape[1] != self.length:
            return torch.full((rows,), -1)
        last = tokens[:, -1]
        legal = ((tokens >= 0) & (tokens < self.chain.states)).all(axis=1)
        legal &= np.isin(last, np.flatnonzero(self._trigger_weights) if self.drawn else self.triggers)
        noisy = np.zeros(rows, dtype=bool)
        output = np.full((rows, self.chain.states), -1)
        every = np.arange(rows)
        tokens = np.where(legal[:, None], tokens, 0)
        for position in range(1, self.length - 1):
            before, token = tokens[:, position - 1], tokens[:, position]
            after_trigger = self._is_trigger(before, last)
            noise = token == self.noise_token
            noisy |= after_trigger & noise
            known = output[every, before]
            legal &= ~(after_trigger & ~noise & (known >= 0) & (known != token))
            told = every[after_trigger & ~noise]
            output[told, before[told]] = token[told]
        return torch.from_numpy(np.where(legal, np.where(noisy, 0, 1), -1))

    def metrics(self, outputs: Float[Tensor, "batch scored output"], batch: Batch) -> dict[str, Tensor]:
        """`right` and `noise`: the probabilities of y and of the noise token; `accuracy`: y is the most probable."""
        return {
            "right": probability(outputs, batch.answers),
            "noise": torch.softmax(outputs, dim=-1)[..., self.noise_token],
            "accuracy": correct(outputs, batch.answers),
        }

    def text_of(self, token: int) -> str:
        """A token as people read it."""
        if token == self.noise_token:
            return "noise"
        if self.source == "uniform":
            return str(token)
        character = table_characters(self.source, self.digest)[token]
        return {"\n": "newline", " ": "space"}.get(character, character)

    def render(self, inputs: Int[Tensor, "batch position"]) -> Sequence[Example]:
        """The sequences as characters, with what the oracle recalls at the last position."""
        answer, sides = self.oracle(inputs), self.split_of(inputs).tolist()
        known, answers = answer.known[:, -1].tolist(), answer.answers[:, -1].tolist()
        found = answer.trace[2].position.tolist()
        return [
            self._render(tokens, found[row], answers[row] if known[row] else None, sides[row])
            for row, tokens in enumerate(inputs.tolist())
        ]

    def _render(self, tokens: list[int], found: int, answer: int | None, side: int) -> Example:
        triggers = {tokens[-1]} if self.drawn else set(self.triggers)
        roles = ["trigger" if token in triggers else "plain" for token in tokens]
        for position in range(1, len(tokens) - 1):
            if tokens[position - 1] in triggers:
                roles[position] = "noise" if tokens[position] == self.noise_token else "output"
        last = self.text_of(tokens[-1])
        trace = [f"trigger {last} at position {len(tokens) - 1}"]
        if answer is None:
            trace.append("it was never followed by anything but noise")
        else:
            trace += [f"the same trigger at position {found - 1}", f"{self.text_of(answer)} after it"]
        return Example(
            tuple(Token(self.text_of(token), role) for token, role in zip(tokens, roles, strict=True)),
            tuple(trace),
            "unknown" if answer is None else self.text_of(answer),
            self.splits[side] if side >= 0 else "nowhere",
        )
