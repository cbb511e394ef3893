"""Snapshots and events as runs make them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai_harness.step_persistence import ContinuableSnapshot, StepEvent, ToolEffectRecord

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def grown(run: str, number: int) -> Any:
    """The snapshot of a run after so many steps: a message for each."""
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(f"{run} {n}", timestamp=AT)]) for n in range(number)]
    at = AT + timedelta(seconds=number)
    return ContinuableSnapshot(run_id=run, step_index=number, messages=messages, timestamp=at, idempotency_key=f"{number}:k")


def event(run: str, number: int) -> Any:
    return StepEvent(run_id=run, kind="tool_call_started", step_index=number, timestamp=AT, idempotency_key=f"{number}")


def effect(run: str, number: int, status: Any = "started") -> Any:
    return ToolEffectRecord(run_id=run, tool_call_id=f"call{number}", tool_name="tool", status=status, started_at=AT)
