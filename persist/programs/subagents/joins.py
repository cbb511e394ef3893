"""Decides whether a parallel block is over, and with which outcome, from the statuses of its branches. Pure."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from persist.db.values.arguments import check_choice
from persist.errors import InvalidValue
from persist.programs.schemas import SETTLED, ExecutionStatus

log = logging.getLogger("persist")


class Strategy(StrEnum):
    """What a parallel block waits for: every branch, the first one to end, or `count` successes."""

    ALL = "all"
    FIRST = "first"
    ANY = "any"


class OnFail(StrEnum):
    """What a failed branch does to its block: fail it at once, fail it when all branches have ended, or nothing."""

    FAIL_FAST = "fail-fast"
    CONTINUE = "continue"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Joined:
    """The state of a block: still waiting, or its outcome, the branches to cancel, and the branches that failed."""

    outcome: Literal["wait", "success", "failure"]
    cancel: list[str]
    failed: list[str]


def join(strategy: str | None, count: int | None, on_fail: str | None, branch_states: Mapping[str, str]) -> Joined:
    """Decide whether a parallel block is over. `branch_states`: branch -> status of its execution, for every branch.

    None means all, one success, and fail-fast. A branch has ended when it is completed, failed or skipped; other statuses are
    waited for. `all`: no branch failed. `first`: the first to end decides, so under fail-fast a failure does too. `any`:
    `count` branches completed; fail-fast then fails as soon as that cannot be reached any more. `continue` decides on failure
    only when every branch has ended, `ignore` never. A block without branches succeeds. A larger count than there are
    branches is lowered to them, with a warning. Raises InvalidValue for other words, and for a count without `any` or below 1.
    """
    kind = check_choice("strategy", Strategy.ALL if strategy is None else strategy, Strategy)
    mode = check_choice("on_fail", OnFail.FAIL_FAST if on_fail is None else on_fail, OnFail)
    wanted = _wanted(kind, count, len(branch_states))
    failed = [name for name, state in branch_states.items() if state == ExecutionStatus.FAILED]
    waiting = [name for name, state in branch_states.items() if state not in SETTLED]
    completed = sum(state == ExecutionStatus.COMPLETED for state in branch_states.values())
    if kind is Strategy.ALL:
        ended, good = not waiting, not failed
        hopeless = bool(failed)
    else:
        ended = good = completed >= wanted
        hopeless = completed + len(waiting) < wanted or (kind is Strategy.FIRST and bool(failed))
    if ended and good:
        return Joined("success", waiting, failed)
    if mode is OnFail.FAIL_FAST and hopeless:
        return Joined("failure", waiting, failed)
    if waiting:
        return Joined("wait", [], failed)
    return Joined("success" if mode is OnFail.IGNORE else "failure", [], failed)


def _wanted(strategy: Strategy, count: int | None, branches: int) -> int:
    """The number of successes that ends a block."""
    if count is None:
        return min(1, branches)
    if strategy is not Strategy.ANY:
        raise InvalidValue("count", f"only 'any' counts, and the strategy is {strategy.value!r}.")
    if type(count) is not int or count < 1:
        raise InvalidValue("count", "expected a whole number, 1 or more.")
    if count > branches:
        log.warning("a parallel block waits for %d of its %d branches; all of them will do", count, branches)
    return min(count, branches)
