"""Questions in words as sequences of vectors: each word is a random symbol, and what is left of a premise is a pair."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks import Batch, MinimalRetrieval, RetrievalPrompts


@dataclass(frozen=True)
class Transcribed:
    """Questions as inputs of a `retrieval/minimal` task, with the ends of all chains.

    Shapes
        inputs: `[question position both]`, a pair for each premise in its order, then the words that can be asked about
        asked: `[question]`, which of those words the question is about
        ends: `[question chain feature]`, the symbols that can be the answer
        answer: `[question]`, which of the ends is right
    """

    inputs: Float[Tensor, "question position both"]
    asked: Int[Tensor, "question"]
    ends: Float[Tensor, "question chain feature"]
    answer: Int[Tensor, "question"]

    def right(self, outputs: Float[Tensor, "*member question query output"]) -> Bool[Tensor, "*member question"]:
        """Return whether the right end is the nearest to what a model says of the last symbol of the chain asked for.

        outputs: predictions at all queries; the last features belong to the last symbol
        """
        features, rows = self.ends.shape[-1], torch.arange(len(self.asked))
        said = outputs[..., rows, self.asked, -features:]
        distance = (said.unsqueeze(-2) - self.ends).square().sum(dim=-1)
        return distance.argmin(dim=-1) == self.answer


def transcribe(questions: RetrievalPrompts, batch: Batch, into: MinimalRetrieval, seed: int = 0) -> Transcribed:
    """Return a batch of equations as inputs of a task of vectors with as many chains and steps.

    The premise "b = a" becomes the pair (b, a), and every word a normal vector, drawn anew in each question. The
    question becomes the words that no premise explains another word by, one for each chain, in random order: the model
    answers about all of them at once, as in training.
    Errors: `SpecError` for questions that are not equations in the paper's order about the ends of their chains, and
    for a task of other chains or steps.
    """
    sizes = (into.chains, into.steps)
    if questions.formulation != "equations" or questions.order not in ("paper", "steps"):
        problem = f"{questions.formulation} in the order {questions.order!r} are not pairs step by step"
        raise SpecError("questions", problem, "take retrieval/equations in the paper's order")
    if (questions.chains, questions.steps) != sizes or questions.distractors or questions.depths != (questions.steps,):
        problem = f"do not ask about the ends of {into.chains} chains of {into.steps} steps"
        raise SpecError("questions", problem, "take as many chains and steps, without distractors and `asked_steps`")
    words = batch.inputs[:, : 4 * into.chains * into.steps]
    premises = words.reshape(len(batch), -1, 4)  # name, " = ", value, end of line
    pairs = premises[:, :, [0, 2]]
    name = batch.inputs[:, -2]  # in "What is the value of ", name, "?"
    random = generator(seed, "transcription", batch.split)
    order = torch.from_numpy(random.permuted(torch.arange(into.chains).expand(len(batch), -1).numpy(), axis=1))
    queries, ends = pairs[:, -into.chains :, 0].gather(1, order), pairs[:, : into.chains, 1]
    size = (len(batch), questions.shape.input_size, into.features)
    symbols = torch.from_numpy(random.standard_normal(size, dtype="float32"))

    def of(words: Int[Tensor, "question _"]) -> Float[Tensor, "question _ feature"]:
        return symbols.gather(1, words.unsqueeze(-1).expand(-1, -1, into.features))

    places = torch.from_numpy(into.position_vectors).expand(len(batch), -1, -1)
    return Transcribed(
        inputs=torch.cat([of(torch.cat([pairs.flatten(1), queries], dim=1)), places], dim=-1),
        asked=(queries == name.unsqueeze(1)).int().argmax(dim=1),
        ends=of(ends),
        answer=(ends == batch.answers).int().argmax(dim=1),
    )
