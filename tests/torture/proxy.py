"""A loopback TCP proxy in front of a Postgres server that looks at each message, and loses or holds what it is told to."""

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from sqlalchemy import make_url


class Fate(Enum):
    """What becomes of a message."""

    PASS = auto()
    CUT_BEFORE = auto()
    """The connection is lost before the message arrives."""
    CUT_AFTER = auto()
    """The message arrives, and nothing after it."""
    STALL = auto()
    """Neither this message nor any other of the connection goes on; nobody is told. The proxy goes on with others."""


class Message(NamedTuple):
    """One message of the protocol; of the first of a connection, which says who connects, `kind` is empty."""

    from_server: bool
    kind: bytes
    body: bytes


Judge = Callable[[Message], Fate]


class Proxy:
    """Listens on a port of its own from `with` on. `judge` is asked about every message; it may be replaced at any time."""

    def __init__(self, server_url: str, chance: random.Random) -> None:
        """`server_url`: of a database, on a Unix socket or a loopback port."""
        parsed = make_url(server_url)
        folder, port = parsed.query.get("host"), parsed.port or 5432
        self._target = f"{folder}/.s.PGSQL.{port}" if folder else (parsed.host, port)
        self._chance = chance
        self._listening = socket.create_server(("127.0.0.1", 0))
        mine = parsed.set(
            host="127.0.0.1", port=self._listening.getsockname()[1], query={"sslmode": "disable", "gssencmode": "disable"}
        )
        self.url = mine.render_as_string(hide_password=False)
        self.judge: Judge = passes
        self._mutex = threading.Lock()
        self._links: set[_Link] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._open = True

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        self._thread.join(10)

    def cut(self) -> None:
        """Lose every connection, stalled ones too."""
        with self._mutex:
            links = list(self._links)
        for link in links:
            link.cut()

    def _accept(self) -> None:
        while self._open:
            try:
                client = self._listening.accept()[0]
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # messages go on one by one
            server = socket.socket(socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET)
            link = _Link(self, client, server, abrupt=self._chance.random() < 0.5)
            with self._mutex:
                self._links.add(link)
            try:
                server.connect(self._target)
            except OSError:  # the server is down: so is the way to it
                link.cut()
                continue
            link.start()

    def forget(self, link: "_Link") -> None:
        """It is over."""
        with self._mutex:
            self._links.discard(link)


class _Link:
    """One connection through the proxy: a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket, *, abrupt: bool) -> None:
        self._proxy, self._client, self._server, self._abrupt = proxy, client, server, abrupt
        self._over = threading.Event()

    def start(self) -> None:
        for source, target, from_server in ((self._client, self._server, False), (self._server, self._client, True)):
            threading.Thread(target=self._carry, args=(source, target, from_server), daemon=True).start()

    def cut(self) -> None:
        self._over.set()
        if self._abrupt:  # a reset instead of an end
            with contextlib.suppress(OSError):
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._proxy.forget(self)

    def _carry(self, source: socket.socket, target: socket.socket, from_server: bool) -> None:
        first = not from_server
        with contextlib.suppress(OSError), source.makefile("rb") as stream:
            while True:
                kind = b"" if first else stream.read(1)
                length = stream.read(4)
                if len(length) < 4 or (not first and not kind):
                    break
                body = stream.read(struct.unpack(">I", length)[0] - 4)
                fate = self._proxy.judge(Message(from_server, kind, body))
                first = False
                if fate is Fate.STALL:
                    self._over.wait()
                if fate is not Fate.CUT_BEFORE:
                    target.sendall(kind + length + body)
                if fate is not Fate.PASS:
                    break
        self.cut()


def passes(message: Message) -> Fate:
    """The judge that lets everything through."""
    return Fate.PASS


def nth(number: int, fate: Fate) -> Judge:
    """The so-manieth message from now on, in whatever direction, has this fate."""
    lock, seen = threading.Lock(), 0

    def judge(message: Message) -> Fate:
        nonlocal seen
        with lock:
            seen += 1
            return fate if seen == number else Fate.PASS

    return judge
