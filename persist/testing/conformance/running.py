"""Running the checks of a framework: each alone, all of them even where some fail."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import uuid4

T = TypeVar("T")


class NotConformant(AssertionError):  # noqa: N818  # says what the object under test is
    """The object under test did what its framework does not expect. `expected` and `found` are what differs, if values do."""

    def __init__(self, sentence: str, expected: object = None, found: object = None) -> None:
        self.expected, self.found = expected, found
        values = "" if expected is None and found is None else f" Expected {_shortened(expected)}, found {_shortened(found)}."
        super().__init__(sentence + values)


@dataclass(frozen=True)
class Report:
    """Which checks passed, and what the others raised, by the names of the checks."""

    passed: tuple[str, ...]
    failed: Mapping[str, BaseException]

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} passed, {len(self.failed)} failed"]
        lines += [f"  {name}: {type(error).__name__}: {error}" for name, error in self.failed.items()]
        return "\n".join(lines)

    def raise_failures(self) -> None:
        """Raise an ExceptionGroup of what the failed checks raised, if any did."""
        if self.failed:
            raise BaseExceptionGroup(str(self), list(self.failed.values()))


async def run(checks: Iterable[Callable[[T], Awaitable[None]]], make: T) -> Report:
    """Run each check with `make`, in order. Only what is no Exception, such as a cancellation, ends the run early."""
    passed, failed = [], dict[str, BaseException]()
    for check in checks:
        name = getattr(check, "__name__", repr(check))
        try:
            await check(make)
        except Exception as error:
            failed[name] = error
        else:
            passed.append(name)
    return Report(tuple(passed), MappingProxyType(failed))


def expect(expected: Any, found: Any, sentence: str) -> None:
    """Raise NotConformant if the two differ, also where only their types or the order of keys do."""
    if _exact(expected) != _exact(found):
        raise NotConformant(sentence, expected, found)


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
