"""Servers that are no Postgres and speak its protocol: played by a socket that greets as they do."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, make_url

from persist import Store
from persist.cli import main
from persist.errors import InvalidValue, UnsupportedEngine

GREETINGS = {
    "CockroachDB": {"server_version": "13.0.0", "crdb_version": "CockroachDB CCL v25.2.0"},
    "YugabyteDB": {"server_version": "15.12-YB-2025.1.0.0-b0"},
}


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _greeting(parameters: dict[str, str]) -> bytes:
    reported = {"client_encoding": "UTF8", "standard_conforming_strings": "on", **parameters}
    told = b"".join(_message(b"S", f"{name}\0{value}\0".encode()) for name, value in reported.items())
    return _message(b"R", struct.pack("!I", 0)) + told + _message(b"K", struct.pack("!II", 1, 1)) + _message(b"Z", b"I")


def _serve(listener: socket.socket, greeting: bytes) -> None:
    with suppress(OSError):
        while True:
            client = listener.accept()[0]
            with closing(client), suppress(OSError):
                client.settimeout(10)
                while client.recv(10_000)[4:8] in (_SSL, _GSS):
                    client.sendall(b"N")  # no encryption here
                client.sendall(greeting)
                client.recv(10_000)  # what it asks next, or that it has left


_SSL, _GSS = struct.pack("!I", 80877103), struct.pack("!I", 80877104)


@pytest.fixture
def greet() -> Iterator[Callable[[str], str]]:
    """A function that starts a server of that name and gives its URL."""
    with ExitStack() as stack:

        def start(name: str) -> str:
            listener = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
            thread = threading.Thread(target=_serve, args=(listener, _greeting(GREETINGS[name])), daemon=True)
            thread.start()
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return f"postgresql://somebody@127.0.0.1:{listener.getsockname()[1]}/any"

        yield start


@pytest.mark.parametrize("name", GREETINGS)
def test_a_store_is_refused_by_name(greet: Callable[[str], str], name: str) -> None:
    with pytest.raises(UnsupportedEngine, match="LISTEN and NOTIFY, LOCK TABLE, and advisory locks") as refused:
        Store.open(greet(name))
    assert refused.value.found == name


@pytest.mark.parametrize("name", GREETINGS)
def test_a_hosts_engine_is_refused_by_name(greet: Callable[[str], str], name: str) -> None:
    engine = create_engine(greet(name).replace("postgresql:", "postgresql+psycopg:"), _initialize=False)
    try:
        with pytest.raises(UnsupportedEngine) as refused:
            Store.from_engine(engine)
    finally:
        engine.dispose()
    assert refused.value.found == name


@pytest.mark.parametrize("name", GREETINGS)
def test_an_upgrade_is_refused_by_name(greet: Callable[[str], str], name: str) -> None:
    ended = CliRunner().invoke(main, ["upgrade", "--url", greet(name)])
    assert ended.exit_code == 1
    assert ended.output.startswith(f"Error: {name}: it lacks LISTEN")


# ---------------------------------------------------------------- a connection string that asks for another encoding than UTF-8


SAID = "日本, ä, €"


@pytest.mark.parametrize("encoding", ["latin1", "SQL_ASCII", "utf8"])
def test_text_is_kept_whatever_encoding_the_url_names(postgres_url: str, encoding: str) -> None:
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}client_encoding={encoding}"
    with Store.open(url) as store:
        session = store.chat.sessions.create(agent=SAID, model={})
        with store.record(session.id) as recorder:
            recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": SAID}])
        assert store.chat.sessions.get(session.id).agent == SAID
        assert store.chat.messages.list(session.id)[0]["parts"][0]["text"] == SAID


def test_text_is_kept_whatever_encoding_the_environment_names(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "latin1")
    with Store.open(postgres_url) as store:
        session = store.chat.sessions.create(agent=SAID, model={})
        assert store.chat.sessions.get(session.id).agent == SAID


def test_the_encoding_of_a_hosts_connections_is_named(postgres_url: str) -> None:
    """Half a surrogate pair is what UTF-8 lacks; another encoding lacks more."""
    engine = create_engine(
        make_url(postgres_url).set(drivername="postgresql+psycopg"), connect_args={"client_encoding": "latin1"}
    )
    with Store.from_engine(engine) as store:
        with pytest.raises(InvalidValue, match="encoding, latin-1, lacks a character"):
            store.chat.sessions.create(agent=SAID, model={})
        with pytest.raises(InvalidValue, match="lone surrogate half"):
            store.chat.sessions.create(agent="\ud800", model={})
        assert store.chat.sessions.create(agent="ä", model={}).agent == "ä"
    engine.dispose()
