"""Which process this is: a forked child has what its parent made, but neither its threads nor the right to its connections."""

import os
from collections.abc import Callable


class _Process:
    """Told of each fork, since to ask the system for a number costs more than what most calls do."""

    forks = 0
    """How many lie between this process and the one that was started."""


THIS = _Process()


def in_each_child(function: Callable[[], object]) -> None:
    """Have it called first thing in every forked child. Windows knows no forks: there it never is."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def _in_child() -> None:
    THIS.forks += 1


in_each_child(_in_child)
