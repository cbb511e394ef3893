"""Short ways to say what the tests of programs say all the time, each verb in a transaction of its own."""

from collections.abc import Callable
from typing import Any

from persist.programs.schemas import Binding, ProgramExecution
from tests.async_portal import PortalStore, SyncFace

RUN = "20260116-143052-a7b3c9"
OTHER = "20260116-143053-b8c4d0"


def make(store: Any, id: str = RUN) -> str:
    """The id of a run."""
    return str(store.programs.runs.create(program_source="session 'hi'", id=id).id)


def do(store: Any, aggregate: str, verb: str, *args: Any, **options: Any) -> Any:
    """A writing verb."""
    return getattr(getattr(store.programs, aggregate), verb)(*args, **options)


def ask(store: Any, aggregate: str, verb: str, *args: Any, **options: Any) -> Any:
    """A reading verb."""
    return getattr(getattr(store.programs, aggregate), verb)(*args, **options)


def given(store: Any, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What `subagent`, `audit` and the like make of the store: over an AsyncStore awaited, and a handle used like the other."""
    if not isinstance(store, PortalStore):
        return function(store, *args, **options)

    async def awaited() -> Any:
        return await function(store._target, *args, **options)

    made = store._portal.call(awaited)
    return SyncFace(store._portal, made) if hasattr(made, "bindings") else made


def begin(store: Any, run: str = RUN, parent: int | None = None, **options: Any) -> int:
    """The id of a statement that executes."""
    given = {"statement_index": 1, "statement_text": "session 'x'", **options}
    execution: ProgramExecution = do(store, "executions", "begin", run, parent_id=parent, **given)
    return execution.id


def chain(store: Any, length: int, run: str = RUN) -> list[int]:
    """So many statements, each in the frame of the one before."""
    with store.begin() as tx:
        ids: list[int] = []
        for _ in range(length):
            parent = ids[-1] if ids else None
            begun = tx.programs.executions.begin(run, statement_index=1, statement_text="do", parent_id=parent)
            ids.append(begun.id)
        return ids


def bind(store: Any, name: str, value: str | None, run: str = RUN, **options: Any) -> Binding:
    bound: Binding = do(store, "bindings", "bind", run, name, value, **options)
    return bound


def resolve(store: Any, name: str, frame: int | None = None, run: str = RUN) -> str | None:
    """The value that a name has in a frame."""
    found: Binding = ask(store, "bindings", "resolve", run, name, execution_id=frame)
    return found.value
