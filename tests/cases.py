"""Hundreds of cases of a pure function in one test: as tests of their own, pytest takes longer for each of them than it runs.

Cases of a store are put together in the same way, where none of them sees what another one left: what is refused, or what has
a thing of its own in each case.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from typing import Any

import pytest

_PARAM = type(pytest.param())


def each(
    names: str | Sequence[str], cases: Iterable[Any], *, ids: Callable[[Any], object] | Iterable[object] = repr
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the test with every case, and name all those that fail. What it takes is what `pytest.mark.parametrize` takes."""
    named = names.replace(",", " ").split() if isinstance(names, str) else [*names]
    given = list(cases)
    assert given, "no case"
    labels = [ids] * len(given) if callable(ids) else [*ids]
    known = []
    for case, label in zip(given, labels, strict=True):
        values = case.values if isinstance(case, _PARAM) else [case] if len(named) == 1 else case
        known.append((case, label, dict(zip(named, values, strict=True))))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def every_case(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for case, label, values in known:
                try:
                    test(**fixtures, **values)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"{', '.join(named)}: {label(case) if callable(label) else label}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(known)} cases of {test.__name__} failed", failures)

        update_wrapper(every_case, test)
        vars(every_case).pop("__wrapped__")  # pytest would look there for fixtures
        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in named]
        every_case.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]  # read by pytest
        return every_case

    return decorate
