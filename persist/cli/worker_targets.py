"""What `persist work MODULE:NAME` names: a worker, or a dict of handlers; and a sentence for each way in which it does not."""

import inspect
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import FunctionType, ModuleType
from typing import Any

import click

from persist.cli.database import Database
from persist.cli.output import inline, say
from persist.cli.root import Failed
from persist.errors import InvalidValue, PersistError
from persist.store.async_store import AsyncStore
from persist.workers.jobs import is_coroutine_function
from persist.workers.worker import UNDER_MAIN, AsyncWorker, Worker, may_run

_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_TARGET = re.compile(rf"({_NAME}):({_NAME})")
_EXPECTED = "a Worker, an AsyncWorker or a dict of handlers"
_LONG = 10.0
"""Seconds of an import after which the user is told what may be the reason."""
_HANDLERS = "handlers"
_IMPORTING = (__file__, import_module.__code__.co_filename)
"""Files whose frames come before those of the imported module."""
_OPTIONS = [one.name for one in inspect.signature(Worker.__init__).parameters.values() if one.kind is one.KEYWORD_ONLY]


@dataclass(frozen=True)
class Target:
    """A module, and a name in it."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


@dataclass(frozen=True)
class Handlers:
    """A dict of handlers, and the options that it has for their worker."""

    target: Target
    handlers: Mapping[str, Any]
    options: Mapping[str, Any]

    def worker(self, database: Database) -> Worker | AsyncWorker:
        """A worker of these handlers: one of an AsyncStore if a handler is a coroutine function."""
        opened = database.open_existing()
        store = AsyncStore(opened) if any(map(is_coroutine_function, self.handlers.values())) else opened
        try:
            make: Any = Worker  # which makes the worker of the store's face
            made: Worker | AsyncWorker = make(store, self.handlers, **self.options)
        except InvalidValue as error:
            opened.close()
            raise Failed(f"{self.target}: {error}") from error
        return made


def to_target(ctx: click.Context, param: click.Parameter, value: str) -> Target:
    """For `callback=` of an argument: MODULE:NAME, both of which may have dots."""
    of_file = re.search(r"\.py\b|[\\/]", value)
    if (match := _TARGET.fullmatch(value)) and not of_file:
        return Target(match[1], match[2])
    hint = " A module is named as `import` names it, not by its file." if of_file else ""
    raise click.BadParameter(f"expected MODULE:NAME such as app:worker, got {inline(repr(value))}.{hint}")


def load(target: Target) -> Worker | AsyncWorker | Handlers:
    """What the target names, from a module in this folder or any that Python finds. Raises Failed with the reason."""
    module = _import_named(target.module)
    found: Any = module
    at = f"The module {target.module!r}"
    for word in target.name.split("."):
        try:
            found = getattr(found, word)
        except AttributeError:
            raise Failed(f"{at} has no {word!r}. {_offered(module)}") from None
        except Exception as error:
            raise Failed(f"{at} does not give its {word!r}: {type(error).__name__}: {error}") from error
        at = f"Its {word!r}"
    if isinstance(found, Worker | AsyncWorker):
        return found
    if isinstance(found, Mapping):
        return _in_mapping(target, found)
    one = f' As a dict: {{"WORKFLOW": {target.name}}}.' if isinstance(found, FunctionType) else ""
    raise Failed(f"{target} is {_what_is(found)}, not {_EXPECTED}.{one or ' ' + _offered(module)}")


def _in_mapping(target: Target, found: Mapping[Any, Any]) -> Handlers:
    """The dict itself, or its handlers beside the options of a worker."""
    if not isinstance(found.get(_HANDLERS), Mapping):
        if not found:
            raise Failed(f"{target} is an empty dict, not {_EXPECTED}.")
        return Handlers(target, found, {})
    options = {name: value for name, value in found.items() if name != _HANDLERS}
    for name in options:
        if name not in _OPTIONS:
            raise Failed(f"{target} has {_HANDLERS!r}, and {name!r}, which is no option of a worker: {', '.join(_OPTIONS)}.")
    return Handlers(target, found[_HANDLERS], options)


def _what_is(found: object) -> str:
    match found:
        case type():
            return f"the class {found.__name__}"
        case ModuleType():
            return "a module"
        case FunctionType():
            return "a function"
    return f"of the type {type(found).__name__}"


def _offered(module: ModuleType) -> str:
    """What else of the module could be meant."""
    found = [name for name, value in vars(module).items() if not name.startswith("_") and _is_offer(value)]
    return f"It has {', '.join(sorted(found))}." if found else f"Nothing in it is {_EXPECTED}."


def _is_offer(value: object) -> bool:
    if not isinstance(value, Mapping):
        return isinstance(value, Worker | AsyncWorker)
    handlers = value.get(_HANDLERS, value)
    if not isinstance(handlers, Mapping) or not handlers:
        return False
    return all(isinstance(name, str) and callable(handler) for name, handler in handlers.items())


def _import_named(name: str) -> ModuleType:
    folder = os.getcwd()
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)  # as `python -m` has it
    said = may_run.set(False)
    try:
        with _told_if_long(name):
            return import_module(name)
    except ModuleNotFoundError as error:
        raise Failed(_not_found(name, folder, error)) from error
    except SystemExit as error:
        raise Failed(
            f"The module {name!r} ends the program when it is imported{_line_of(error, folder)}: {UNDER_MAIN}"
        ) from error
    except Exception as error:
        kind = "" if isinstance(error, PersistError) else f"{type(error).__name__}: "
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = f"{kind}{text}".rstrip(": .")
        raise Failed(f"The module {name!r} cannot be imported{_line_of(error, folder)}: {reason}.") from error
    finally:
        may_run.reset(said)


def _not_found(name: str, folder: str, error: ModuleNotFoundError) -> str:
    missing = error.name or str(error)
    if missing != name and not name.startswith(f"{missing}."):
        return (
            f"The module {name!r} cannot be imported{_line_of(error, folder)}: it needs {missing!r}, "
            f"which {sys.executable} does not have."
        )
    if "." in missing:
        return f"There is no module {missing!r}: {missing.rpartition('.')[0]!r} has none of that name."
    close = get_close_matches(missing, [found.name for found in iter_modules([folder])], 3)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"There is no module {missing!r} in {folder}, and {sys.executable} has none either.{meant}"


def _line_of(error: BaseException, folder: str) -> str:
    """The line of the user's code that an error comes from, as ` (app.py, line 3)`."""
    if isinstance(error, SyntaxError) and error.filename:
        place = error.filename, error.lineno
    else:
        frames = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
        after = [frame for frame in frames if frame[0] not in _IMPORTING and not frame[0].startswith("<frozen ")]
        own = [frame for frame in after if Path(frame[0]).is_relative_to(folder) and "site-packages" not in frame[0]]
        if not after:
            return ""
        place = (own or after)[-1]
    path, line = place
    return f" ({os.path.relpath(path, folder) if Path(path).is_relative_to(folder) else path}, line {line})"


@contextmanager
def _told_if_long(name: str) -> Iterator[None]:
    """Nothing is silent for ever: what a module does when it is imported may have no end."""
    hint = f"The module {name!r} is still being imported. If it starts what has no end, {UNDER_MAIN}"
    timer = threading.Timer(_LONG, say, [inline(hint)], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
