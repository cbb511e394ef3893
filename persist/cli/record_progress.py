"""How far a long recording is: chunks, bytes and, by rule of thumb, tokens."""

import os
import stat
from types import TracebackType
from typing import Any, BinaryIO

from persist.cli.progress import Display

_CHARACTERS_PER_TOKEN = 4  # a rule of thumb: streams do not say how many tokens a piece of text is


class RecordProgress:
    """Counts chunks, bytes and tokens, and shows them while it is entered."""

    def __init__(self, stream: BinaryIO, *, terminal: bool, quiet: bool) -> None:
        self.chunks = self.bytes = self._characters = 0
        self._total = _size(stream)
        self._display = Display(quiet=quiet, terminal=terminal)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._display.seconds

    def line(self, size: int) -> None:
        """A line was read."""
        self.bytes += size

    def fed(self, chunk: dict[str, Any]) -> None:
        """A chunk is stored."""
        self.chunks += 1
        piece = chunk.get("delta", chunk.get("inputTextDelta"))
        if isinstance(piece, str):
            self._characters += len(piece)
        if self._display.due:
            self._display.show(str(self), self.bytes, self._total)

    def __enter__(self) -> "RecordProgress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._display.stop()

    def __str__(self) -> str:
        rate = self._characters / _CHARACTERS_PER_TOKEN / max(self.seconds, 0.001)
        return f"{self.chunks:,} chunks, {self.bytes / 1000:,.1f} KB, about {rate:,.0f} tokens/s"


def _size(stream: BinaryIO) -> int | None:
    """How long the input is, if it is a file."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no descriptor: a stream in memory
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
