"""Whether errors of adapters tell what is stored: in their text, or in an error that they come from."""

import traceback
from collections.abc import Iterator

import pytest

from persist.errors import PersistError

SECRET = "swordfish-4711"


def require_silence(caught: pytest.ExceptionInfo[PersistError], caplog: pytest.LogCaptureFixture | None = None) -> None:
    """An error, those that it comes from, and the log show nothing of the secret: neither their text nor their attributes."""
    told = "".join(traceback.format_exception(caught.value)) + (caplog.text if caplog else "")
    for error in _chain(caught.value):
        told += f"{error} {error!r} {error.args} {vars(error)}"
    lines = [line for line in told.splitlines() if not line.startswith("    ")]  # without the source lines of a traceback
    assert SECRET not in "\n".join(lines)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException | None] = [None]
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in seen:
            seen.append(one)
            yield one
            waiting += [one.__cause__, one.__context__]
