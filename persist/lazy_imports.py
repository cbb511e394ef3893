"""Importing on first use, so that a program pays for the parts it uses and for no others.

`lazy_module` stands for a module, `lazy_names` serves the names of a package. Both are a declaration for the type checker and the
import contracts, and one for the interpreter, side by side:

    if TYPE_CHECKING:
        from persist.chat.recording import recovery
    else:
        recovery = lazy_module("persist.chat.recording.recovery")

The tests hold the two together. A lazy module must not be used while a module of persist is being imported.
"""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import Any

# Two threads, of which one imports a package and the other a module inside it, can end in a deadlock that Python breaks
# with an error: first uses happen one after the other.
_one_at_a_time = RLock()
# A fork waits for them: a child would find the lock held by a thread that is not there, and half a module.
if hasattr(os, "register_at_fork"):
    _release = _one_at_a_time.release
    os.register_at_fork(before=_one_at_a_time.acquire, after_in_parent=_release, after_in_child=_release)


class lazy_module:  # noqa: N801  # reads as the word it is
    """A module that is imported when one of its names is first used; afterwards that module."""

    __slots__ = ("_module", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = _imported(self._name)
        return getattr(self._module, name)


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: its names, each from the module that is its home."""

    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(_imported(homes[name]), name)

    return found


def _imported(name: str) -> ModuleType:
    with _one_at_a_time:
        return import_module(name)
