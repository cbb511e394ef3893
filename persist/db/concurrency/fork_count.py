"""Counts forks: a forked child must not use its parent's connections, and its parent's threads do not exist there."""

import os
from collections.abc import Callable


class _Process:
    """Counts forks by an at-fork hook: calling os.getpid() each time would cost more than most verbs do."""

    forks = 0
    """The number of forks from the started process down to this process."""


PROCESS = _Process()


def in_each_child(function: Callable[[], object]) -> None:
    """Register a function to be called in every forked child, right after the fork. Windows has no forks: never called there."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def _in_child() -> None:
    PROCESS.forks += 1


in_each_child(_in_child)
