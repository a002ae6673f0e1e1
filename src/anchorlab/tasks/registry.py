"""The registry of tasks: factories by name, task classes by family."""

import inspect
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints
from weakref import WeakValueDictionary

from pydantic import Field, create_model

from anchorlab.errors import SpecError
from anchorlab.spec import Spec, check_known
from anchorlab.tasks.task import Task

Factory = TypeVar("Factory", bound=Callable[..., Task])
SomeTask = TypeVar("SomeTask", bound=Task)

_factories: dict[str, tuple[Callable[..., Task], type[Spec]]] = {}
_families: dict[str, type[Task]] = {}

_shared: "WeakValueDictionary[tuple[object, str], Task]" = WeakValueDictionary()
_newest: deque[Task] = deque(maxlen=8)  # keeps recent tasks alive, for a loop over the runs of a store


def task_family(family: str) -> Callable[[type[SomeTask]], type[SomeTask]]:
    """Register a task class that has no name of its own under its `family` tag, by which `parse_task` finds it.

    Errors: `ValueError` for a duplicate tag, and for a class whose `family` has another default.
    """

    def register(task_class: type[SomeTask]) -> type[SomeTask]:
        if task_class.model_fields["family"].default != family:
            raise ValueError(f"{task_class.__name__}.family must have the default {family!r}")
        if _families.get(family, task_class) is not task_class:
            raise ValueError(f"task family {family!r} is already registered by {_families[family].__name__}")
        _families[family] = task_class
        return task_class

    return register


def register_task(name: str) -> Callable[[Factory], Factory]:
    """Register a factory (a function that returns a task, or a task class) under a name; a class also by its family.

    The factory's parameters become the task's arguments and need type hints. The first line of its docstring describes
    the task in lists. The factory must return equal tasks for equal arguments, because the task is built only once.
    Errors: `ValueError` for a duplicate name or a factory without a docstring.
    """

    def register(factory: Factory) -> Factory:
        if name in _factories:
            raise ValueError(f"task {name!r} is already registered")
        if not inspect.getdoc(factory):
            raise ValueError(f"the factory of task {name!r} needs a docstring, which describes it in lists")
        if isinstance(factory, type) and issubclass(factory, Task):
            task_class: type[Task] = factory
            task_family(str(task_class.model_fields["family"].default))(task_class)
        _factories[name] = (factory, _arguments_model(name, factory))
        return factory

    return register


def _arguments_model(name: str, factory: Callable[..., Task]) -> type[Spec]:
    """Return a specification with a field for each argument; it converts and checks the values that users give."""
    if isinstance(factory, type) and issubclass(factory, Task):
        own = {key: info for key, info in factory.model_fields.items() if key not in ("family", "name")}
        definitions: dict[str, Any] = {key: (info.rebuild_annotation(), info) for key, info in own.items()}
    else:
        hints = get_type_hints(factory, include_extras=True)
        parameters = inspect.signature(factory).parameters
        definitions = {
            key: (hints[key], Field() if parameter.default is parameter.empty else parameter.default)
            for key, parameter in parameters.items()
        }
    model: type[Spec] = create_model(name, __base__=Spec, **definitions)
    return model


def task_factory(name: str) -> tuple[Callable[..., Task], type[Spec]]:
    """Return the factory of a registered task and the specification of its arguments.

    Errors: `SpecError` for an unknown name, and for a Python file.
    """
    if name.endswith(".py"):
        raise SpecError("task", f"{name!r} is Python code", "name the task that it registers, and --import the file")
    check_known("task", name, _factories, "task")
    return _factories[name]


def task_names() -> tuple[str, ...]:
    """Return the names of the registered tasks in alphabetical order."""
    return tuple(sorted(_factories))


def task_description(name: str) -> str:
    """Return the one-line description of a registered task. Errors: `SpecError` for an unknown name."""
    return (inspect.getdoc(task_factory(name)[0]) or "").splitlines()[0]


def task_arguments(name: str) -> Mapping[str, Any]:
    """Return the arguments of a registered task with their defaults, in order.

    Errors: `SpecError` for an unknown name.
    """
    fields = task_factory(name)[1].model_fields
    return {key: info.get_default(call_default_factory=True) for key, info in fields.items()}


def parse_task(data: Any, at: str = "task") -> Task:
    """Rebuild a task of any family from its `model_dump(mode="json")`; the result equals the original.

    Errors: `SpecError` that names the field below `at`.
    """
    if not isinstance(data, Mapping):
        raise SpecError(at, f"should hold a task's fields, got {data!r:.60}", "write them as a table")
    family = data.get("family")
    if not isinstance(family, str):
        problem = "is missing" if family is None else f"should be text, got {family!r:.60}"
        raise SpecError(f"{at}.family", problem, f"known: {', '.join(sorted(_families))}")
    check_known(f"{at}.family", family, _families, "task family")
    parse, plain = _families[family].parse, dict(data)
    try:
        text = json.dumps(plain)
    except (TypeError, ValueError):  # Python objects that JSON lacks, or values that no task may hold
        return parse(plain, at=at)
    return shared(_families[family], text, lambda: parse(plain, at=at))


def shared(maker: object, arguments: str, build: Callable[[], Task]) -> Task:
    """Return the task that `maker` builds from these arguments, or the equal task that is already in use.

    Building a task proves that its splits are separate, which takes milliseconds. Since tasks are frozen, thousands of
    experiments can share one task and its tables.
    """
    key = maker, arguments
    found = _shared.get(key)
    if found is None or getattr(found, "digest", False):  # a task of a file is built anew: the file may have changed
        found = _shared[key] = build()
        _newest.append(found)
    return found
