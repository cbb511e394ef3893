"""Importing on first use, so that a program pays for the parts it uses and for no others.

    with lazy_modules(globals()):
        from persist.chat.recording import recovery

A block of `lazy_modules` binds each module that it imports to a stand-in, which imports the module when one of its names is first
used. A block of `lazy_names` is for a package: it offers each name that the block imports, and imports the name's module when
somebody asks for it. To the type checker, the import contracts and whatever else reads the source, the imports of a block are
ordinary ones.

A lazy module must not be used while a module of persist is being imported.
"""

import builtins
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import Any

# Two threads, of which one imports a package and the other a module inside it, can end in a deadlock that Python breaks
# with an error: first uses happen one after the other.
_one_at_a_time = RLock()


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


@contextmanager
def lazy_modules(namespace: dict[str, Any]) -> Iterator[None]:
    """Bind the modules that the block imports to stand-ins. `namespace`: the `globals()` of the module with the block."""
    _blocks.enter(namespace)
    try:
        yield
    finally:
        _blocks.leave(namespace)


@contextmanager
def lazy_names(namespace: dict[str, Any]) -> Iterator[None]:
    """Offer the names that the block imports through the `__getattr__` of the package whose `globals()` is `namespace`."""
    with lazy_modules(namespace):
        yield
    homes = {name: value._name.rpartition(".") for name, value in namespace.items() if type(value) is lazy_module}
    for name in homes:
        del namespace[name]
    namespace["__getattr__"] = _getattr(namespace["__name__"], homes)


def _getattr(package: str, homes: Mapping[str, tuple[str, str, str]]) -> Callable[[str], Any]:
    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, _, there = homes[name]
        return getattr(_imported(home), there)

    return found


def _imported(name: str) -> ModuleType:
    with _one_at_a_time:
        return import_module(name)


class _Home:
    """What `from … import …` of a block sees instead of the package: each of its names is a module to import later."""

    __slots__ = ("_package",)

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> lazy_module:
        return lazy_module(f"{self._package}.{name}")


class _Blocks:
    """The blocks that are being run. While there is one, `__import__` is replaced: only the imports of a block see stand-ins."""

    def __init__(self) -> None:
        # A lock of its own: a block runs while its module is imported, and a first use may wait for that module.
        self.lock = RLock()
        self._namespaces: tuple[Mapping[str, Any], ...] = ()  # a new tuple for each change, since importing threads read it
        self._import = builtins.__import__
        self._replacing = False

    def enter(self, namespace: Mapping[str, Any]) -> None:
        with self.lock:
            self._namespaces = (*self._namespaces, namespace)
            if not self._replacing:
                self._import, self._replacing, builtins.__import__ = builtins.__import__, True, self

    def leave(self, namespace: Mapping[str, Any]) -> None:
        with self.lock:
            self._namespaces = tuple(other for other in self._namespaces if other is not namespace)
            # code that replaced __import__ in the meantime calls this object: then it stays, and lets every import through
            if not self._namespaces and builtins.__import__ is self:
                builtins.__import__, self._replacing = self._import, False

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if not any(globals is namespace for namespace in self._namespaces):
            return self._import(name, globals, locals, fromlist, level)
        if not fromlist or level:
            raise ImportError(f"write a lazy import as `from package import name`, unlike that of {name!r}")
        return _Home(name)


_blocks = _Blocks()


def _before_fork() -> None:
    _one_at_a_time.acquire()  # in this order: the thread that holds it may be importing a module with a block
    _blocks.lock.acquire()


def _after_fork() -> None:
    _blocks.lock.release()
    _one_at_a_time.release()


# A fork waits for both locks: a child would find one held by a thread that is not there, and half a module.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
