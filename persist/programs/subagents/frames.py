"""Checks that a run and a frame are there, before somebody is told of them."""

from typing import Any, TypeVar

from persist.programs.storage.run_rows import outlives_runs
from persist.programs.subagents.stores import AnyStore, Question, ask

R = TypeVar("R")


def frame_questions(store: AnyStore, run_id: str, execution_id: int | None) -> list[Question]:
    """The verb calls that check the frame. They raise NotFound for the run or the execution."""
    questions: list[Question] = [lambda programs: programs.runs.get(run_id)]
    if execution_id is not None:
        questions.append(lambda programs: programs.executions.get(run_id, execution_id))
    return questions


def check_frame(store: AnyStore, run_id: str, execution_id: int | None, then: R) -> Any:
    """Check run and execution, then return `then`, or a coroutine of it. Raises NotFound. "project" and "user" need no run."""
    if execution_id is None and outlives_runs(run_id, store.run_id):
        return ask(store, [], lambda _: then)
    return ask(store, frame_questions(store, run_id, execution_id), lambda _: then)
