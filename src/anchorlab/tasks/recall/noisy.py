"""Noisy in-context recall: a trigger is followed by the sequence's own output token, or by noise."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.random import Generator
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, Example, Token, TraceStep, drawn_in_parts
from anchorlab.tasks.metrics import correct, probability
from anchorlab.tasks.numbers import Numbers
from anchorlab.tasks.recall.evidence import read_evidence, scored_positions, scored_width, trigger_share
from anchorlab.tasks.recall.markov import MarkovChain, is_table_file, table_chain, table_characters, table_digest
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.task import Task

Tokens = TypeVar("Tokens", np.ndarray, Tensor)

_ROWS_AT_ONCE = 8192
_EXISTING_NOISE = 2  # '!' of tiny Shakespeare


@register_task("recall/noisy")
class NoisyRecall(Task):
    """The token that followed the trigger earlier in the sequence, though noise often takes its place.

    A Markov chain z_1 ~ pi_u, z_{t+1} ~ pi_b(.|z_t), except that a trigger is followed by y with probability 1 - alpha
    and by the noise token with probability alpha. Each sequence draws y ~ uniform for each trigger; z_T is a trigger.
    The split `clean` has alpha = 0.

    length: the length T of a sequence
    alpha: the probability of noise after a trigger
    source: a packaged table of character bigrams, a table's file written by `anchorlab table`, or `uniform` tokens
    tokens: the number of uniform tokens; a table determines its own number
    digest: the digest of a table's file, filled in when the task is built; a file that changed later is refused
    noise: the noise token is one more token N (`appended`, the paper's text) or token 2, '!' (`existing`, the paper's
        code). The paper does not give pi_b after an appended noise token; here it is pi_u.
    noises: the number of noise tokens N, N + 1, ...; more than one only if appended
    by_trigger: whether each trigger has its own noise token, in the order of `triggers`, starting again with the first
        noise token if there are fewer; otherwise all noise tokens are equally likely every time
    triggers: the fixed triggers; 1 is the space, the most frequent character
    drawn: if not 0, each sequence draws this number of triggers from pi_u without repetition, in place of fixed
        triggers
    scored: `last` scores z_{T+1}; `after_trigger` scores the token after the second and each later occurrence of a
        trigger
    max_scored: the number of scored positions under `after_trigger`, the same for all batches; 0: see `width`. The last
        column is position T, with weight 0 if its trigger is new. If a sequence has more scored positions, the earliest
        are left out.

    With several triggers, z_T is one of them, drawn uniformly. A trigger at T-1 is not scored, because z_T is set, not
    drawn. The splits differ only in their noise and may draw the same sequence, so `separated` is false.
    Source: truncated weights, section 4 and A.3.
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
    noises: int = Field(1, ge=1, le=1000)
    by_trigger: bool = False

    later: ClassVar[frozenset[str]] = frozenset({"noises", "by_trigger"})
    separated: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _with_digest(cls, given: Any) -> Any:
        if isinstance(given, dict) and is_table_file(source := given.get("source", "")):
            found = table_digest(source)
            if given.get("digest") not in (None, "", found):
                problem = f"the table {source} has changed since"
                raise SpecError("digest", problem, "build the task again, without digest")
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
            raise SpecError("tokens", f"the table {self.source} has its own {characters}", "leave tokens out")
        if self.noise == "existing" and self.noise_token >= characters:
            problem = f"{self.noise_token} is not among {characters} tokens"
            raise SpecError("noise", problem, "use appended, or more tokens")
        if len(set(self.triggers)) < len(self.triggers):
            raise SpecError("triggers", f"{list(self.triggers)} names one twice", "name each trigger once")
        if self.noises > 1 and self.noise == "existing":
            raise SpecError("noises", f"{self.noises} noise tokens are not one existing token", "use noise = appended")
        if self.by_trigger and (self.drawn or min(self.noises, len(self.triggers)) < 2):
            problem = "needs fixed triggers and noise tokens, two or more of each"
            raise SpecError("by_trigger", problem, "set triggers and noises, and leave drawn 0")
        possible = int((self._trigger_weights > 0).sum())
        if self.drawn > possible:
            raise SpecError("drawn", f"{self.drawn} is more than the {possible} possible triggers", "lower it")
        if self.max_scored >= self.length:
            raise SpecError("max_scored", f"{self.max_scored} is not below the length {self.length}", "lower it")
        if self.max_scored and self.scored == "last":
            raise SpecError("max_scored", "applies only to scored = after_trigger", "leave it 0")
        return self

    @cached_property
    def _plain_chain(self) -> MarkovChain:
        return MarkovChain.uniform(self.tokens) if self.source == "uniform" else table_chain(self.source, self.digest)

    @cached_property
    def chain(self) -> MarkovChain:
        """The chain of pi_u and pi_b over all tokens, including an appended noise token."""
        chain = self._plain_chain
        for _ in range(self.noises if self.noise == "appended" else 0):
            chain = chain.with_state()
        return chain

    @property
    def noise_token(self) -> int:
        """The id of the noise token, or of the first one."""
        return self._plain_chain.states if self.noise == "appended" else _EXISTING_NOISE

    @cached_property
    def _noise_weights(self) -> Float[np.ndarray, "token noise"]:
        """The probability of each noise token after each token, if noise follows; uniform after non-triggers."""
        weights = np.full((self.chain.states, self.noises), 1 / self.noises)
        if self.by_trigger:
            weights[list(self.triggers)] = np.eye(self.noises)[np.arange(len(self.triggers)) % self.noises]
        return weights

    def _is_noise(self, tokens: Tokens) -> Tokens:
        """Return whether each token is a noise token."""
        return (tokens >= self.noise_token) & (tokens < self.noise_token + self.noises)

    @cached_property
    def _trigger_weights(self) -> Float[np.ndarray, "token"]:
        """The weight of each token when triggers are drawn: pi_u, without an existing noise token."""
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
        """The number of scored positions of a sequence; under `after_trigger` see `scored_width`."""
        if self.scored == "last":
            return 1
        return self.max_scored or scored_width(self.length, self._trigger_share())

    def _trigger_share(self) -> float:
        """Return the long-run share of triggers, averaged over y; if triggers are drawn, for the most frequent ones."""
        often = np.argsort(-self._trigger_weights, kind="stable")[: self.drawn]
        triggers = often.tolist() if self.drawn else list(self.triggers)
        # the chain averaged over y: a trigger is followed by noise with probability alpha, else by a uniform token; the
        # same tokens follow all noise tokens
        transition = self.chain.transition.copy()
        transition[triggers] = 0.0
        transition[triggers, : self._plain_chain.states] = (1 - self.alpha) / self._plain_chain.states
        transition[np.ix_(triggers, [self.noise_token])] += self.alpha
        return trigger_share(self.chain.initial, transition, triggers)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` sequences.

        Latents: `output` and `trigger` `[batch trigger]`; `noisy` `[batch scored]`, whether the target is noise.
        """
        self.check_draw(split, n, seed)
        random, alpha = generator(seed, "sequences", split), self.alpha if split == "train" else 0.0
        found = drawn_in_parts(n, _ROWS_AT_ONCE, lambda rows: self._draw(random, rows, alpha))
        inputs, targets, answers = (found[name] for name in ("inputs", "targets", "answers"))
        last = self.scored == "last"
        positions, weights = torch.tensor([self.length - 1]) if last else found["positions"], found["weights"]
        latents = {"output": found["output"], "trigger": found["trigger"], "noisy": self._is_noise(targets)}
        return Batch(inputs, targets, answers, positions, split, None if last else weights, latents=latents)

    def _draw(self, random: Generator, rows: int, alpha: float) -> dict[str, np.ndarray]:
        """Draw `rows` sequences z_1 .. z_{T+1} from left to right, and what is scored of them."""
        triggers = self._draw_triggers(random, rows)
        every = np.arange(rows)
        # a table per sequence from token to output, -1 for tokens that are no trigger: one lookup tests and answers
        outputs = np.full((rows, self.chain.states), -1, dtype=np.int16)
        outputs[every[:, None], triggers] = random.integers(self._plain_chain.states, size=triggers.shape)
        flat_outputs, seen = outputs.reshape(-1), np.zeros(outputs.size, dtype=bool)
        repeated = np.zeros((rows, self.length), dtype=bool)
        offset = every * self.chain.states
        final = triggers[every, random.integers(triggers.shape[1], size=rows)]
        # position first, so that each step writes one block of memory; transposed at the end
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
            # draw the next token of every row from the chain, then replace it in the rows with a trigger here
            noise = self._draw_noise(random, state[at])
            state = self.chain.transition_table.draw(random, state)
            state[at] = np.where(random.random(at.size) < alpha, noise, output[at])
        tokens[-1] = state
        drawn = np.ascontiguousarray(tokens.T).astype(np.int64)
        positions, weights = self._scored(repeated)
        asked = np.take_along_axis(drawn, positions, axis=1)
        return {
            "inputs": drawn[:, :-1],
            "targets": np.take_along_axis(drawn, positions + 1, axis=1),
            "answers": np.take_along_axis(outputs, asked, axis=1).astype(np.int64),
            "positions": positions,
            "weights": weights,
            "trigger": triggers,
            "output": np.take_along_axis(outputs, triggers, axis=1).astype(np.int64),
        }

    def _draw_noise(self, random: Generator, triggers: Int[np.ndarray, "row"]) -> Int[np.ndarray, "row"] | int:
        """Return a noise token for each trigger, or a single number if there is only one noise token."""
        if self.noises == 1:
            return self.noise_token
        if self.by_trigger:
            return np.asarray(self.noise_token + self._noise_weights[triggers].argmax(axis=1))
        return self.noise_token + random.integers(self.noises, size=len(triggers))

    def _draw_triggers(self, random: Generator, rows: int) -> Int[np.ndarray, "row trigger"]:
        if not self.drawn:
            return np.tile(np.array(self.triggers, dtype=np.int64), (rows, 1))
        # Taking the largest of log-weights plus independent Gumbel variables is a weighted draw without repetition.
        with np.errstate(divide="ignore"):
            keys = np.log(self._trigger_weights) + random.gumbel(size=(rows, len(self._trigger_weights)))
        return np.argsort(-keys, axis=1)[:, : self.drawn]

    def _scored(
        self, repeated: Bool[np.ndarray, "row position"]
    ) -> tuple[Int[np.ndarray, "row scored"], Float[np.ndarray, "row scored"]]:
        """Return the scored positions and their weights."""
        if self.scored == "after_trigger":
            return scored_positions(repeated, self.width)
        rows, length = repeated.shape
        return np.full((rows, 1), length - 1, dtype=np.int64), np.ones((rows, 1), dtype=np.float32)

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return the token other than noise that earlier followed each scored trigger; known if there is exactly one.

        Each position uses only the tokens up to it. If several triggers are drawn, only z_T is taken for a
        trigger, so only the last column is known. Nothing is known of a sequence with a token outside the vocabulary.
        The trace is for position T.
        """
        own = ((inputs >= 0) & (inputs < self.chain.states)).all(dim=1).numpy()
        tokens = np.where(own[:, None], inputs.numpy(), 0)
        rows, every = tokens.shape[0], np.arange(tokens.shape[0])
        last = tokens[:, -1]
        evidence = read_evidence(tokens, self.chain.states, self._is_noise(tokens))
        positions, _ = self._scored(evidence.repeated & self._is_trigger(tokens, tokens[:, -1:]))
        answers = evidence.recalled[every[:, None], positions]
        known = (answers >= 0) & (self._is_trigger(last, last) & own)[:, None]
        if self.drawn > 1:
            known[:, :-1] = False
        found = np.where(own, evidence.source[every, last], -1)
        trace = (
            TraceStep("trigger", torch.full((rows,), self.length - 1), torch.from_numpy(last)),
            TraceStep("earlier trigger", torch.from_numpy(np.maximum(found, 0) - 1), torch.from_numpy(last)),
            TraceStep("output", torch.from_numpy(found), torch.from_numpy(evidence.follower[every, last])),
        )
        return Answer(torch.from_numpy(answers), torch.from_numpy(known), trace)

    def roles(self, batch: Batch) -> dict[str, Int[Tensor, "batch scored"]]:
        """Return the positions of `asked`, `output` and `earlier trigger`; -1 for none.

        `asked` are the scored triggers, `output` the first token other than noise after an earlier occurrence of each,
        and `earlier trigger` that occurrence.
        """
        tokens, asked = batch.inputs.cpu().numpy(), batch.asked
        source = torch.from_numpy(read_evidence(tokens, self.chain.states, self._is_noise(tokens)).source)
        output = source.gather(1, batch.inputs.cpu().gather(1, asked.clamp(min=0)))
        output = output.where((asked >= 0) & (output <= asked), -1)
        return {"earlier trigger": torch.where(output >= 0, output - 1, -1), "output": output, "asked": asked}

    def ideal(self, inputs: Int[Tensor, "batch position"]) -> Float[Tensor, "batch scored output"]:
        """Return the exact distribution of the token after each scored trigger, given the tokens after earlier ones.

        By Bayes' rule, a token other than noise reveals y. Until then every y is equally likely. The exception is
        `noise = "existing"`: then each noise token after the trigger is evidence that y is the noise token itself.

        Errors: `SpecError` for tokens outside the vocabulary.
        """
        tokens = inputs.numpy()
        if ((tokens < 0) | (tokens >= self.chain.states)).any():
            problem = "hold a token outside the vocabulary"
            raise SpecError("inputs", problem, f"give tokens from 0 to {self.chain.states - 1}")
        evidence = read_evidence(tokens, self.chain.states, self._is_noise(tokens))
        positions, _ = self._scored(evidence.repeated & self._is_trigger(tokens, tokens[:, -1:]))
        every = np.arange(len(positions))[:, None]
        recalled, noises = evidence.recalled[every, positions], evidence.noises[every, positions]
        characters = self._plain_chain.states
        posterior = np.zeros((*positions.shape, self.chain.states))
        posterior[..., :characters] = 1.0
        if self.noise == "existing":
            posterior[..., :characters] = (self.alpha**noises)[..., None]
            posterior[..., self.noise_token] = 1.0
        posterior[recalled >= 0] = np.eye(self.chain.states)[recalled[recalled >= 0]]
        posterior /= posterior.sum(axis=-1, keepdims=True)
        posterior *= 1 - self.alpha
        asked = np.take_along_axis(tokens, positions, axis=1)
        posterior[..., self.noise_token : self.noise_token + self.noises] += self.alpha * self._noise_weights[asked]
        return torch.from_numpy(posterior).float()

    def _is_trigger(self, token: Int[np.ndarray, "row ..."], last: Int[np.ndarray, "row ..."]) -> np.ndarray:
        """Return whether each token is known to be a trigger: a fixed trigger, or the last token if drawn."""
        return token == last if self.drawn else np.isin(token, self.triggers)

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return 1 (clean) if noise follows no known trigger, 0 (train) if it does, -1 for an impossible sequence.

        Known triggers are the fixed ones, the last token, and every token before a step that the chain never takes,
        such as a step to an appended noise token.
        """
        tokens = inputs.numpy()
        every, is_noise = np.arange(len(tokens)), self._is_noise(tokens)
        triggers = np.zeros((len(tokens), self.chain.states), dtype=bool)
        triggers[:, [] if self.drawn else self.triggers] = True
        triggers[every, tokens[:, -1]] = True
        legal = self.chain.initial[tokens[:, 0]] > 0
        row, place = np.nonzero(self.chain.transition[tokens[:, :-2], tokens[:, 1:-1]] == 0)
        triggers[row, tokens[row, place]] = True
        possible = np.flatnonzero(self._trigger_weights) if self.drawn else list(self.triggers)
        legal &= ~np.delete(triggers, possible, axis=1).any(axis=1)
        count = self.drawn or len(self.triggers)
        legal &= triggers.sum(axis=1) <= count
        # what follows each token apart from noise, and whether that is one token only; whether noise follows
        output, one_output = np.full(triggers.shape, -1), np.ones_like(triggers)
        noisy = np.zeros_like(triggers)
        for position in range(1, self.length - 1):
            before, token, noise = tokens[:, position - 1], tokens[:, position], is_noise[:, position]
            if self.by_trigger:
                at = np.flatnonzero(triggers[every, before] & noise)
                legal[at] &= self._noise_weights[before[at], token[at] - self.noise_token] > 0
            known = output[every, before]
            one_output[every, before] &= noise | (known < 0) | (known == token)
            noisy[every, before] |= noise
            output[every, before] = np.where(noise, known, token)
        # the tokens that may be triggers in each split; existing noise may be y
        clean = one_output & (~noisy | ((output < 0) & (self.noise == "existing")))
        train = {0.0: clean, 1.0: output < 0}.get(self.alpha, one_output)
        legal &= np.logical_or(
            *(~(triggers & ~may).any(axis=1) & (may[:, possible].sum(axis=1) >= count) for may in (train, clean))
        )
        return torch.from_numpy(np.where(legal, np.where((triggers & noisy).any(axis=1), 0, 1), -1))

    def metrics(
        self, outputs: Float[Tensor, "batch scored output"], batch: Batch
    ) -> dict[str, Float[Tensor, "batch scored"]]:
        """Return the probabilities of y (`right`) and of noise (`noise`), and indicators of the most probable token.

        `accuracy` is 1 if y is the most probable token, `predicts_noise` if noise is; otherwise they are 0.
        """
        return {
            "right": probability(outputs, batch.answers),
            "noise": torch.softmax(outputs, dim=-1)[..., self.noise_token : self.noise_token + self.noises].sum(dim=-1),
            "accuracy": correct(outputs, batch.answers),
            "predicts_noise": self._is_noise(outputs.argmax(dim=-1)).to(outputs.dtype),
        }

    def text_of(self, token: int) -> str:
        """Return the text of a token: its character, its number, or `noise`."""
        if self._is_noise(np.array([token])):
            return "noise" if self.noises == 1 else f"noise {token - self.noise_token + 1}"
        if self.source == "uniform":
            return str(token)
        character = table_characters(self.source, self.digest)[token]
        return {"\n": "newline", " ": "space"}.get(character, character)

    def render(self, inputs: Int[Tensor, "batch position"]) -> Sequence[Example]:
        """Return the sequences as characters, with the oracle's answer at the last position."""
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
                roles[position] = "noise" if self._is_noise(np.array([tokens[position]])) else "output"
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
