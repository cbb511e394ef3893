"""A proxy between a client and a Postgres server that counts round trips: each time the client waits for an answer.

What the client sends before it has seen an answer to what it sent is one flight. The proxy keeps each answer back for a moment,
as a network does. So a client that does not wait for an answer is seen to go on without it, and that flight does not count.
"""

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from psycopg import conninfo

from tests.roundtrips.wire import Client, Server

_MOST_CONNECTIONS = 64
_STUCK_SECONDS = 20.0
_PIECE = 65536
_LOOK, _END = b"?", b"."
Address = str | tuple[str, int]
"""The path of a Unix socket, or a host and a port."""


@dataclass
class Flight:
    """What a client sent before it saw an answer."""

    statements: list[str] = field(default_factory=list)
    answered: bool = False


class _Link:
    """One connection of a client, and the proxy's own to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.said, self.heard = Client(), Server()
        self.flight = Flight(answered=True)
        self.sent = 0.0
        self.answers: deque[tuple[float, bytes]] = deque()


class CountingProxy:
    """Listens on the loopback interface, in a thread of its own, until it is closed.

    The thread needs the GIL. A client that waits for the server without giving it up therefore waits for ever.
    """

    def __init__(self, url: str) -> None:
        parts = conninfo.conninfo_to_dict(url)
        self._target = address_of(parts)
        self._changed = threading.Condition()
        self._flights: list[Flight] | None = None
        self._delay = 0.0
        self._looked = True
        self._links: list[_Link] = []
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self.url = _url(parts, self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._run, name="counting-proxy", daemon=True)
        self._thread.start()

    @contextmanager
    def counted(self, delay: float) -> Iterator[list[Flight]]:
        """A list that has, at the end of the block, the flights in it whose answers were waited for."""
        self.settle()
        waited: list[Flight] = []
        with self._changed:
            self._flights, self._delay = [], delay
        try:
            yield waited
        finally:
            with self._changed:
                waited += [Flight(list(flight.statements), True) for flight in self._flights if flight.answered]
                self._flights, self._delay = None, 0.0
        self.settle()

    def settle(self) -> None:
        """Wait until the server has answered everything that was sent until now."""
        with self._changed:
            self._looked = False
            self._wake.send(_LOOK)
            if not self._changed.wait_for(self._settled, _STUCK_SECONDS):
                raise TimeoutError("the server did not answer")

    def _settled(self) -> bool:
        return self._looked and all(link.heard.idle and not link.answers for link in self._links)

    def close(self) -> None:
        """Cut every connection, and end the thread."""
        self._wake.send(_END)
        self._thread.join(_STUCK_SECONDS)
        for end in (self._listener, self._wake, self._woken):
            end.close()
        self._selector.close()

    def _run(self) -> None:
        while True:
            due = min((link.answers[0][0] for link in self._links if link.answers), default=None)
            asked = self._pass_on(None if due is None else max(0.0, due - time.monotonic()))
            if _END in asked:
                break
            if _LOOK in asked:
                self._pass_on(0.0)  # what was sent before the question, and was no part of the pass that found it
                with self._changed:
                    self._looked = True
                    self._changed.notify_all()
            self._deliver()
        for link in tuple(self._links):
            self._drop(link)

    def _pass_on(self, seconds: float | None) -> bytes:
        """Pass on whatever has arrived, or arrives within so many seconds; what the proxy itself is asked for."""
        asked = b""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._woken:
                asked = self._woken.recv(_PIECE)
            else:
                key.data()
        return asked

    def _accept(self) -> None:
        ends = accepted(self._listener, self._target, len(self._links))
        if ends is None:
            return
        client, server = ends
        link = _Link(client, server)
        with self._changed:
            self._links.append(link)
        self._selector.register(client, selectors.EVENT_READ, lambda: self._send(link))
        self._selector.register(server, selectors.EVENT_READ, lambda: self._answer(link))

    def _send(self, link: _Link) -> None:
        if not (data := received(link.client)):
            return self._drop(link)
        with self._changed:
            if link.flight.answered:
                link.flight = Flight()
                if self._flights is not None:
                    self._flights.append(link.flight)
            link.flight.statements += link.said.statements(data)
            link.heard.idle = False
            link.sent = time.monotonic()
        with suppress(OSError):  # the server has gone, which reading from it tells
            link.server.sendall(data)

    def _answer(self, link: _Link) -> None:
        if not (data := received(link.server)):
            return self._drop(link)
        with self._changed:
            link.answers.append((link.sent + self._delay, data))

    def _deliver(self) -> None:
        now = time.monotonic()
        for link in tuple(self._links):
            while link.answers and link.answers[0][0] <= now:
                with self._changed:
                    _, data = link.answers.popleft()
                    link.flight.answered = True  # before the client has it, and may be asked how much it waited
                with suppress(OSError):  # the client has gone, which reading from it tells
                    link.client.sendall(data)
                with self._changed:
                    link.heard.hear(data)
                    self._changed.notify_all()

    def _drop(self, link: _Link) -> None:
        if link not in self._links:  # both ends were closed at once
            return
        for end in (link.client, link.server):
            self._selector.unregister(end)
            end.close()
        with self._changed:
            self._links.remove(link)
            self._changed.notify_all()


def address_of(parts: Mapping[str, Any]) -> Address:
    """Where the server listens that the parts of a URL name."""
    host, port = str(parts.get("host", "localhost")), int(str(parts.get("port", 5432)))
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


def accepted(listener: socket.socket, server_at: Address, links: int) -> tuple[socket.socket, socket.socket] | None:
    """A client that has come, and a connection to the server for it; None, and no client, if there are too many links."""
    client, _ = listener.accept()
    if links >= _MOST_CONNECTIONS:
        client.close()
        return None
    if isinstance(server_at, str):
        server = socket.socket(socket.AF_UNIX)
        server.connect(server_at)
    else:
        server = socket.create_connection(server_at)
    for end in (client, server):
        end.settimeout(_STUCK_SECONDS)
        if end.family != getattr(socket, "AF_UNIX", None):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


def _url(parts: dict[str, Any], port: int) -> str:
    """The URL of the proxy: of the same user and database, without encryption, which would hide what is said."""
    password = f":{quote(str(parts['password']), safe='')}" if "password" in parts else ""
    user = quote(str(parts.get("user", "postgres")), safe="")
    return f"postgresql://{user}{password}@127.0.0.1:{port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"


def received(end: socket.socket) -> bytes:
    """What has arrived at an end; nothing if that end has gone."""
    try:
        return end.recv(_PIECE)
    except OSError:
        return b""
