"""What one chunk did to a message, and how to undo it."""

from collections.abc import Callable
from typing import Any, Literal

from persist.chat.reducer.message_state import MessageState
from persist.chat.reducer.parts import Part, PartState

_Undo = tuple[Callable[..., object], tuple[Any, ...]]


class Change:
    """What one chunk did. Every mutation goes through it and is logged, so that `undo` can revert it.

    delta + part        text that only extended a growing part (nothing else is set then)
    appended, changed   a part that is new, or was rewritten in place (`changed` may be one of an earlier message)
    removed             parts that left the end of the message
    metadata            the message metadata changed
    opened, closed      a start named another id: a new message began, `closed` is the one before
    boundary            "step" | "finish" | "abort"
    ignored, dropped    a chunk of unknown type; a chunk after an abort
    """

    __slots__ = (
        "_log",
        "appended",
        "boundary",
        "changed",
        "closed",
        "delta",
        "dropped",
        "error_text",
        "ignored",
        "index",
        "metadata",
        "opened",
        "part",
        "removed",
        "type",
    )

    def __init__(self, type: str, index: int) -> None:
        self.type, self.index = type, index
        self.delta: str | None = None
        self.part: PartState | None = None
        self.appended: PartState | None = None
        self.changed: PartState | None = None
        self.removed: list[PartState] = []
        self.metadata = self.opened = self.ignored = self.dropped = False
        self.closed: MessageState | None = None
        self.boundary: Literal["step", "finish", "abort"] | None = None
        self.error_text: str | None = None
        self._log: list[_Undo] = []

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__slots__ if name != "_log"}
        return f"Change({', '.join(f'{name}={value!r}' for name, value in shown.items() if value not in (None, False, []))})"

    @property
    def structural(self) -> bool:
        """Whether the change needs a part or message row written anew. A boundary alone is not structural."""
        return self.appended is not None or self.changed is not None or self.metadata or self.opened or bool(self.removed)

    def undo(self) -> None:
        """Revert every logged mutation, newest first."""
        while self._log:
            function, arguments = self._log.pop()
            function(*arguments)

    def set(self, owner: object, name: str, value: object) -> None:
        self._log.append((setattr, (owner, name, getattr(owner, name))))
        setattr(owner, name, value)

    def put(self, mapping: dict[Any, Any], key: object, value: object) -> None:
        if key in mapping:
            self._log.append((mapping.__setitem__, (key, mapping[key])))
        else:
            self._log.append((mapping.__delitem__, (key,)))
        mapping[key] = value

    def drop(self, mapping: dict[Any, Any], key: object) -> None:
        self._log.append((mapping.__setitem__, (key, mapping.pop(key))))

    def append(self, state: MessageState, data: Part) -> PartState:
        self.appended = part = PartState(data, len(state.parts))
        state.parts.append(part)
        self._log.append((state.parts.pop, ()))
        return part

    def truncate(self, state: MessageState, length: int) -> None:
        """Keep that many of the message's parts, and remove the others."""
        self.removed = state.parts[length:]
        self.set(state, "parts", state.parts[:length])

    def rewrite(self, part: PartState, data: Part, pieces: list[str] | None = None) -> None:
        self.changed = part
        self._log.append((part.restore, (part.data, part.pieces)))
        part.restore(data, pieces or [])

    def extend(self, part: PartState, delta: str) -> None:
        self.delta, self.part = delta, part
        part.pieces.append(delta)
        self._log.append((part.remove_piece, (part.pieces,)))

    def add_piece(self, pieces: list[str], piece: str) -> None:
        pieces.append(piece)
        self._log.append((pieces.pop, ()))
