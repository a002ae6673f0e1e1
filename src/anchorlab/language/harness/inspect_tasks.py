"""The retrieval questions as Inspect tasks: `inspect eval anchorlab/retrieval_equations --model MODEL`.

Inspect finds this module by its entry point.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import click
from inspect_ai import Task
from inspect_ai import task as inspect_task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageUser, GenerateConfig

from anchorlab.errors import SpecError
from anchorlab.language.asking import Manner, Request
from anchorlab.language.harness.inspect_protocol import first_acceptable, until_acceptable
from anchorlab.tasks import RetrievalPrompts, task, task_arguments
from anchorlab.tasks.retrieval.prompts.formulations import FORMULATIONS


def continued(template: str) -> str:
    """Return a chat template that leaves a last message of the assistant open, so that the model continues it.

    Give it as the model argument `chat_template` to Inspect's provider `hf` with `-T begun=true`. Otherwise the
    provider closes the message with the beginning of the answer, and the model starts a new one.
    """
    begun = "{% set begun = messages[-1].content if messages[-1].role == 'assistant' else '' %}"
    rest = "{% if begun %}{% set messages = messages[:-1] %}{% endif %}"
    return f"{begun}{rest}{template}{{{{ begun }}}}"


def _register(name: str) -> Callable[..., Task]:
    """Register a formulation's questions as an Inspect task of the same name, such as `retrieval_lives_with`."""
    defaults = task_arguments(name)

    def questions(
        n: int = 500,
        seed: int = 0,
        chains: int = defaults["chains"],
        steps: int = defaults["steps"],
        order: str = defaults["order"],
        distractors: int = defaults["distractors"],
        asked_steps: int | str | Sequence[int] = defaults["asked_steps"],
        chat: bool = True,
        examples: int = 0,
        begun: bool = False,
        instruction: bool = True,
        tokens: int = 16,
        tries: int = 1,
        temperature: float = 0.0,
    ) -> Task:
        """Ask `n` questions; the other arguments are as in `RetrievalPrompts`, `Manner` and `ask`."""
        asked = (asked_steps,) if isinstance(asked_steps, int) else asked_steps
        try:
            prompts = task(name, chains=chains, steps=steps, order=order, distractors=distractors, asked_steps=asked)
            assert isinstance(prompts, RetrievalPrompts)
            for field, least in (("n", n), ("tries", tries)):
                if least < 1:
                    raise SpecError(field, f"is {least}", "ask at least once")
            manner = Manner(chat=chat, examples=examples, begun=begun, instruction=instruction, tokens=tokens)
            samples = _samples(prompts, n, seed, manner)
        except SpecError as error:
            raise click.UsageError(str(error).removeprefix("task.")) from None
        return Task(
            dataset=MemoryDataset(samples, name=name),
            solver=until_acceptable(begun, tries, temperature, seed),
            scorer=first_acceptable(),
            config=GenerateConfig(temperature=temperature, max_tokens=tokens, stop_seqs=None if chat else ["\n"]),
        )

    made: Callable[..., Task] = inspect_task(name=name.replace("/", "_").replace("-", "_"))(questions)
    return made


def _samples(prompts: RetrievalPrompts, n: int, seed: int, manner: Manner) -> list[Sample]:
    """Return questions as samples; the metadata of a sample are all fields of its question."""
    worked = prompts.questions(manner.examples, seed, "train")
    return [
        Sample(
            id=number,
            input=_messages(manner.request(question, worked)),
            target=question.answer,
            metadata=asdict(question),
        )
        for number, question in enumerate(prompts.questions(n, seed), start=1)
    ]


def _messages(request: Request) -> list[ChatMessage]:
    """Return a request as messages: a plain text is one message; the beginning of an answer is the last message."""
    if not request.chat:
        return [ChatMessageUser(content=request.text)]
    kinds = {"user": ChatMessageUser, "assistant": ChatMessageAssistant}
    found = [kinds[turn.role](content=turn.text) for turn in request.turns]
    return [*found, ChatMessageAssistant(content=request.begun)] if request.begun else found


for _formulation in FORMULATIONS:
    _register(f"retrieval/{_formulation}")
