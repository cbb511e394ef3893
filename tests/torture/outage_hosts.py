"""A proxy that cuts connections, and hosts that record a stream through every outage as docs/operations.md tells them to."""

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from sqlalchemy import make_url

from persist import AsyncStore, Store
from persist.errors import NotFound, PersistError, Unavailable
from tests.torture.scenario import Tally

_PATIENCE = 60.0
_PAUSE = 0.05
_WIDTH = 6

_Step = tuple[str, Mapping[str, Any]]
_NOTHING: Mapping[str, Any] = {}


class Host:
    """One answer of `length` pieces. `fed` counts those whose `feed` returned, `broken` says what should not have happened."""

    def __init__(self, session: str, message: str, length: int) -> None:
        self.session, self.message, self.length = session, message, length
        self.fed = self.lost = 0
        self.broken: list[str] = []
        self.errors: Counter[str] = Counter()
        self._resumed = 0
        self._deadline = time.monotonic() + _PATIENCE

    def record(self, store: Store) -> None:
        """Until all of it is stored."""
        steps, recorder = self._steps(), None
        step = next(steps, None)
        while step is not None:
            try:
                what, chunk = step
                if what == "record":
                    recorder = store.record(self.session).__enter__()
                elif what == "pause":
                    time.sleep(_PAUSE)
                elif what == "look":
                    step = _sent(steps, _stored(store, self.message))
                    continue
                elif recorder is not None:
                    recorder.close() if what == "close" else recorder.feed(chunk)
                step = _sent(steps, None)
            except PersistError as error:
                step = _thrown(steps, error)

    async def record_async(self, store: AsyncStore) -> None:
        """As `record`."""
        steps, recorder = self._steps(), None
        step = next(steps, None)
        while step is not None:
            try:
                what, chunk = step
                if what == "record":
                    recorder = await store.record(self.session).__aenter__()
                elif what == "pause":
                    await asyncio.sleep(_PAUSE)
                elif what == "look":
                    step = _sent(steps, await asyncio.to_thread(_stored, store._store, self.message))
                    continue
                elif recorder is not None:
                    await (recorder.close() if what == "close" else recorder.feed(chunk))
                step = _sent(steps, None)
            except PersistError as error:
                step = _thrown(steps, error)

    def check(self, store: Store) -> None:
        """In the end: all of it is there, once, and the session is free."""
        found = self._pieces(_stored(store, self.message))
        if found != self.length:
            self.broken.append(f"{self.message}: {found} of {self.length} pieces")
        with store.record(self.session):
            pass

    def tell(self, tally: Tally) -> None:
        """What it met."""
        tally.acknowledged += self.fed
        tally.lost += self.lost
        tally.problems += self.broken
        tally.errors.update(self.errors)

    def _steps(self) -> Generator[_Step, Any, None]:
        while True:
            try:
                yield ("record", _NOTHING)
                self._resumed += 1
                part = f"text {self._resumed}"
                yield from self._feed({"type": "start", "messageId": self.message})
                yield from self._feed({"type": "text-start", "id": part})
                while self.fed < self.length:
                    yield from self._feed({"type": "text-delta", "id": part, "delta": f"{self.fed:0{_WIDTH}}"})
                    self.fed += 1
                yield from self._feed({"type": "text-end", "id": part})
                yield from self._feed({"type": "finish"})
                yield ("close", _NOTHING)
            except Unavailable as error:
                self._note(error)
                yield ("pause", _NOTHING)
                yield from self._look(error)
            else:
                return

    def _feed(self, chunk: Mapping[str, Any]) -> Generator[_Step, Any, None]:
        """Where nothing was written the same chunk is fed again, to the same recorder."""
        while True:
            try:
                yield ("feed", chunk)
            except Unavailable as error:
                if error.outcome == "unknown":
                    raise
                self._note(error)
                yield ("pause", _NOTHING)
            else:
                return

    def _look(self, error: Unavailable) -> Generator[_Step, Any, None]:
        """After an unknown outcome what is stored decides what is fed next; it is what was acknowledged, or one piece more."""
        while True:
            try:
                stored = self._pieces((yield ("look", _NOTHING)))
            except Unavailable as again:
                self._note(again)
                yield ("pause", _NOTHING)
            else:
                break
        if stored < self.fed:
            self.lost += self.fed - stored
        if stored > self.fed + (error.outcome == "unknown"):
            self.broken.append(f"{self.message}: {stored} pieces, {self.fed} acknowledged, {error.outcome}: {error}")
        self.fed = stored

    def _pieces(self, text: str) -> int:
        count = len(text) // _WIDTH
        if text != "".join([f"{number:0{_WIDTH}}" for number in range(count)]):
            self.broken.append(f"{self.message}: something is twice, missing or half: {text[-200:]}")
        return count

    def _note(self, error: Unavailable) -> None:
        self.errors[f"Unavailable ({error.outcome})"] += 1
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"it goes on to fail: {error}") from error


def _sent(steps: Generator[_Step, Any, None], value: object) -> _Step | None:
    try:
        return steps.send(value)
    except StopIteration:
        return None


def _thrown(steps: Generator[_Step, Any, None], error: PersistError) -> _Step | None:
    try:
        return steps.throw(error)
    except StopIteration:
        return None


def _stored(store: Store, message: str) -> str:
    try:
        with store.read() as tx:
            return "".join(part.get("text", "") for part in tx.chat.messages.get(message)["parts"])
    except NotFound:
        return ""


# ----------------------------------------------------------------
# A loopback TCP proxy in front of a Postgres server that looks at each message, and loses or holds what it is told to.


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
