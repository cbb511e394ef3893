"""What an adapter makes of arguments of a wrong kind: its signatures are walked, so a new method or argument is tried, too."""

import copy
import dataclasses
import inspect
import typing
import warnings
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import NoneType, UnionType
from typing import Any, Literal, Union

from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy import inspect as inspect_tables
from typing_extensions import is_typeddict

from persist.errors import PersistError
from tests.integrations.kits import Do

Valid = Mapping[str, Mapping[str, Any]]

WRONG: tuple[Any, ...] = (None, "text", 7, b"bytes", {"a": 1}, [None], ["text"], [7], object())
"""Values, each of which is of a wrong kind for most arguments."""

KINDS = [type(value).__name__ for value in WRONG]
"""What tests with one of these values are called."""


def public_methods(kind: type) -> dict[str, Any]:
    """The public methods that a class of persist has of its own; not those that it inherits from the framework."""
    own = {name: member for base in kind.__mro__ if base.__module__.startswith("persist.") for name, member in vars(base).items()}
    return {name: member for name, member in own.items() if not name.startswith("_") and inspect.isfunction(member)}


def require_typed_errors(
    make: Callable[[], Any],
    valid: Valid,
    *,
    do: Do,
    database_url: str,
    error: type[Exception] = PersistError,
    accepted: Collection[str] = (),
    is_documented: Callable[[Exception], bool] = lambda error: False,
) -> None:
    """Call every public method of an adapter with each of its arguments of a wrong kind, the others valid.

    make           a function that makes the adapter anew
    valid          the valid arguments of each method, by name
    error          the class of the framework that a refusal has to be, beside a PersistError
    accepted       the arguments, as "method.argument", that may be of more kinds than are declared, as the documentation says
    is_documented  whether an error of another class is one that the documentation names

    Each call raises such an error and writes nothing, or its argument is of a kind that the signature declares: then it may be
    done, or raise any PersistError. A call whose argument is of the right kind, with a part of a wrong one, may be done, too.
    """
    methods = public_methods(type(make()))
    assert methods.keys() == valid.keys(), "each method needs valid arguments, and has to be there"
    complaints = []
    with _rows_of(database_url) as rows:
        for name in valid:
            method = methods[name]
            hints = typing.get_type_hints(method)
            declared = [key for key in inspect.signature(method).parameters if key != "self"]
            for path, value, given in _attempts(declared, valid[name]):
                is_part = path not in declared
                may = is_part or f"{name}.{path}" in accepted or _fits(value, hints.get(path, Any))
                before = rows()
                raised = _raised(make(), name, given, do)
                told = f"{name}({path}={value!r})"
                if raised is None:
                    complaints += [] if may else [f"{told} was accepted"]
                elif not (is_documented(raised) or (isinstance(raised, PersistError) and (may or isinstance(raised, error)))):
                    complaints.append(f"{told} raised {type(raised).__name__}: {raised}")
                elif rows() != before:
                    complaints.append(f"{told} was refused, and something was written")
    assert not complaints, "\n".join([f"{len(complaints)} calls:", *complaints])


def _attempts(declared: Collection[str], valid: Mapping[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(the place, the wrong value, the arguments), for every argument and every part of one."""
    for key in declared:
        yield from ((key, value, {**valid, key: value}) for value in _wrong())
        yield from ((f"{key}.{part}", one, {**valid, key: value}) for part, one, value in _spoilt(valid.get(key)))


def _spoilt(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """(the place, the wrong value, a copy that has it there), of a dict, a dataclass, a model or a list of one of these."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from ((str(key), one, {**value, key: one}) for one in _wrong())
            yield from ((f"{key}.{part}", one, {**value, key: spoilt}) for part, one, spoilt in _spoilt(below))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from ((field.name, one, dataclasses.replace(value, **{field.name: one})) for one in _wrong() if field.init)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from ((name, one, value.model_copy(update={name: one})) for one in _wrong())
    elif isinstance(value, list) and value:
        yield from ((f"0.{part}", one, [spoilt, *value[1:]]) for part, one, spoilt in _spoilt(value[0]))


def _wrong() -> Iterator[Any]:
    """Values that a framework may change without changing those of the next call."""
    return iter(copy.deepcopy(WRONG))


def _raised(adapter: Any, name: str, given: Mapping[str, Any], do: Do) -> Exception | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # a framework warns of what it cannot serialize
            found = getattr(adapter, name)(**given)
            if inspect.isawaitable(found):
                do(found)
            elif isinstance(found, AsyncIterator):
                do(_read(found))
            elif isinstance(found, Iterator):
                list(found)
    except Exception as error:
        return error
    return None


async def _read(found: AsyncIterator[Any]) -> None:
    async for _ in found:
        pass


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared kind, as far as its class says."""
    origin = typing.get_origin(hint)
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in typing.get_args(hint))
    if origin is Literal:
        return value in typing.get_args(hint)
    if hint is None or hint is NoneType:
        return value is None
    if is_typeddict(hint):
        return isinstance(value, dict)
    kind = origin or hint
    if not isinstance(kind, type):
        return False
    if kind is float:
        kind = (int, float)  # a whole number is one, too
    elif isinstance(value, str | bytes | dict) and issubclass(kind, Collection) and kind not in (str, bytes):
        return isinstance(value, dict) and issubclass(kind, Mapping)
    return isinstance(value, kind)


@contextmanager
def _rows_of(database_url: str) -> Iterator[Callable[[], Any]]:
    """A function that gives all rows of a database, as text."""
    is_file = database_url.startswith("sqlite")
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    tables = inspect_tables(engine).get_table_names(None if is_file else "persist")
    names = [f'"{table}"' if is_file else f'persist."{table}"' for table in tables]
    query = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in names)  # names of our own
    with engine.connect() as connection:

        def rows() -> Any:
            with connection.begin():
                counts = connection.exec_driver_sql(query).all()
                filled = [name for name, count in counts if count]
                return {name: sorted(map(repr, connection.exec_driver_sql(f"SELECT * FROM {name}"))) for name in filled}

        yield rows
    engine.dispose()
