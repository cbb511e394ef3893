"""What Postgres' client and server say to each other, message by message, as far as counting round trips needs it."""

_LENGTH = 4
_NO_TYPE = b"\0"
"""Stands for the type of a connection's first message, which has none."""


class _Messages:
    """Cuts a stream of bytes into messages: a type of one byte, a length of four that counts itself, and the body."""

    def __init__(self, *, typed: bool) -> None:
        self._typed = typed
        self._bytes = b""

    @property
    def cut(self) -> bool:
        """Whether a message has arrived in part."""
        return bool(self._bytes)

    def of(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The type and body of each message that these bytes complete."""
        self._bytes += data
        found: list[tuple[bytes, bytes]] = []
        while True:
            start = 1 if self._typed else 0
            if len(self._bytes) < start + _LENGTH:
                return found
            end = start + int.from_bytes(self._bytes[start : start + _LENGTH])
            if len(self._bytes) < end:
                return found
            kind = self._bytes[:1] if self._typed else _NO_TYPE
            found.append((kind, self._bytes[start + _LENGTH : end]))
            self._bytes, self._typed = self._bytes[end:], True


class Client:
    """The client's side of one connection: the statements that it sends, also those it has prepared before."""

    def __init__(self) -> None:
        self._messages = _Messages(typed=False)
        self._prepared: dict[bytes, str] = {}

    def statements(self, data: bytes) -> list[str]:
        """What the client asks for with these bytes, a line each."""
        lines: list[str] = []
        for kind, body in self._messages.of(data):
            if kind == b"P":
                name, _, rest = body.partition(b"\0")
                self._prepared[name] = _text(rest.partition(b"\0")[0])
                lines.append(f"PREPARE {self._prepared[name]}")
            elif kind == b"B":
                _, _, rest = body.partition(b"\0")
                statement = self._prepared.get(rest.partition(b"\0")[0], "(a statement that is not known)")
                if lines and lines[-1] == f"PREPARE {statement}":
                    lines.pop()
                lines.append(statement)
            elif kind == b"Q":
                lines.append(_text(body.removesuffix(b"\0")))
            elif kind in _OTHER:
                lines.append(_OTHER[kind])
            elif kind == b"D" and not lines:
                lines.append("(describe)")
        return lines


_OTHER = {_NO_TYPE: "(connect)", b"p": "(password)", b"d": "(rows to copy)", b"X": "(disconnect)", b"F": "(function call)"}


class Server:
    """The server's side of one connection: whether it has answered everything."""

    def __init__(self) -> None:
        self._messages = _Messages(typed=True)
        self.idle = False
        """Whether the server's last word was that it is ready for the next query."""

    def hear(self, data: bytes) -> None:
        """Take note of bytes that the server sent."""
        for kind, _ in self._messages.of(data):
            self.idle = kind == b"Z"
        if self._messages.cut:
            self.idle = False


def _text(statement: bytes) -> str:
    return " ".join(statement.decode(errors="replace").split())
