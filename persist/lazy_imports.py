"""Importing on first use, so that a program pays for the parts it uses and for no others.

A later module has a stand-in, which imports the module at the first use of a name:

    if TYPE_CHECKING:
        from persist.chat.recording import resume
    else:
        resume = lazy_module("persist.chat.recording.resume")

A package offers the names that it imports for the type checker, and imports a name's module when somebody asks for it:

    if TYPE_CHECKING:
        from persist.store.store import Store as Store
    lazy_names(globals())

To the type checker, the import contracts and whatever else reads the source, these imports are ordinary ones. A lazy module must
not be used while a module of persist is being imported.
"""

import os
from functools import cache
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

    def __repr__(self) -> str:
        return self._name


def lazy_names(namespace: dict[str, Any]) -> None:
    """Give a package, whose `globals()` are `namespace`, a `__getattr__` and an `__all__`: the names that it imports."""
    package, loader = namespace["__name__"], namespace["__spec__"].loader

    @cache
    def homes() -> dict[str, "_Noted"]:
        return _imports_of(loader.get_code(package))

    def found(name: str) -> Any:
        if name == "__all__":
            return sorted(homes())
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes()[name]
        return getattr(_imported(home.module), home.name)

    namespace["__getattr__"] = found
    namespace["__dir__"] = lambda: sorted({*namespace, *homes()})


def _imports_of(code: Any) -> dict[str, "_Noted"]:
    """The public names that the code of a package binds to names of persist, found by running it where imports are only noted."""
    found: dict[str, Any] = {"__builtins__": {"__import__": _Noted.importing, "globals": dict}}
    exec(code, found)
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, _Noted) and value.module.startswith("persist.") and value.module != __name__ and name[0] != "_"
    }


class _Noted:
    """A name that was imported, or a name in it; nothing is loaded for it."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __getattr__(self, name: str) -> "_Noted":
        return _Noted(f"{self.module}.{self.name}" if self.name else self.module, name)

    def __call__(self, *_: object) -> None:
        """`lazy_names(globals())` itself, which has nothing to do there."""

    @staticmethod
    def importing(name: str, *_: object) -> "_Noted":
        """What an import statement gets instead of the module."""
        return _Noted(name, "")


def _imported(name: str) -> ModuleType:
    with _one_at_a_time:
        return import_module(name)


# A fork waits for the lock: a child would find it held by a thread that is not there, and half a module.
if hasattr(os, "register_at_fork"):
    release = _one_at_a_time.release
    os.register_at_fork(before=_one_at_a_time.acquire, after_in_parent=release, after_in_child=release)
