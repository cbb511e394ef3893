"""Running the checks of a framework: each alone, all of them even where some fail."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import uuid4

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Awaitable[None]])


class NotConformant(AssertionError):  # noqa: N818  # says what the object under test is
    """The object under test did what its framework does not expect. `expected` and `found` are what differs, if values do."""

    def __init__(self, sentence: str, expected: object = None, found: object = None) -> None:
        self.expected, self.found = expected, found
        values = "" if expected is None and found is None else f" Expected {_shortened(expected)}, found {_shortened(found)}."
        super().__init__(sentence + values)


@dataclass(frozen=True)
class Report:
    """The names of passed checks, and the errors of failed checks by name."""

    passed: tuple[str, ...]
    failed: Mapping[str, BaseException]
    beyond: frozenset[str] = frozenset()
    """The names of those checks that the framework's own store in memory does not pass either."""

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} passed, {len(self.failed)} failed"]
        for name, error in self.failed.items():
            more = " (beyond the framework's own store)" if name in self.beyond else ""
            lines.append(f"  {name}{more}: {type(error).__name__}: {error}")
        return "\n".join(lines)

    def raise_failures(self) -> None:
        """Raise an ExceptionGroup of what the failed checks raised, if any did."""
        if self.failed:
            raise BaseExceptionGroup(str(self), list(self.failed.values()))


async def run(checks: Iterable[Callable[[T], Awaitable[None]]], make: T) -> Report:
    """Run each check with `make`, in order. Only what is no Exception, such as a cancellation, ends the run early."""
    passed, failed, beyond = [], dict[str, BaseException](), set[str]()
    for check in checks:
        name = getattr(check, "__name__", repr(check))
        if is_beyond(check):
            beyond.add(name)
        try:
            await check(make)
        except Exception as error:
            failed[name] = error
        else:
            passed.append(name)
    return Report(tuple(passed), MappingProxyType(failed), frozenset(beyond))


def checks_in(module: Mapping[str, Any], *others: object) -> tuple[Callable[[Any], Awaitable[None]], ...]:
    """The checks that a module, whose `globals()` are given, has defined so far, in their order, without the `others`."""
    own = (found for name, found in module.items() if name[0] != "_" and getattr(found, "__module__", "") == module["__name__"])
    return tuple(check for check in own if iscoroutinefunction(check) and check not in others)


def beyond(check: C) -> C:
    """Mark a check that asks for more than the framework's own store in memory does."""
    check.beyond = True  # type: ignore[attr-defined]  # a function may have attributes
    return check


def is_beyond(check: object) -> bool:
    """Whether a check asks for more than the framework's own store in memory does."""
    return getattr(check, "beyond", False) is True


def expect(expected: Any, found: Any, sentence: str) -> None:
    """Raise NotConformant if the two differ, also where only their types or the order of keys do."""
    if _exact(expected) != _exact(found):
        raise NotConformant(sentence, expected, found)


async def expect_error(kind: type[BaseException] | tuple[type[BaseException], ...], call: Awaitable[Any], sentence: str) -> None:
    """Raise NotConformant unless awaiting the call raises an error of this kind."""
    try:
        found = await call
    except kind:
        return
    except Exception as error:
        raise NotConformant(sentence, kind, error) from error
    raise NotConformant(sentence, kind, found)


async def cancel_after(turns: int, call: Awaitable[Any]) -> None:
    """Begin a call, cancel it after so many turns of the event loop, and wait until it has ended."""
    running = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])


def new_id(word: str = "conformance") -> str:
    """An id that nothing else has."""
    return f"{word}-{uuid4().hex}"


def _exact(value: Any) -> Any:
    """A form of a value that is equal only if types and the order of keys are, with NaN equal to itself."""
    if isinstance(value, Mapping):
        return dict, [(key, _exact(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [_exact(item) for item in value]
    return type(value), repr(value) if isinstance(value, float) else value


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:500]}… ({len(text)} characters)"
