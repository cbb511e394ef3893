"""The HTTP endpoint of `persist work --health`: answers, hostile clients, a database that hangs."""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from persist.cli import health
from persist.cli.health import answering
from persist.cli.root import Failed
from tests.contract.chat.scenes import eventually

ABOUT = {"worker": "me", "workflows": ["build"]}
Answering = Callable[[Callable[[], str | None]], AbstractContextManager[str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """`told(trouble)` answers on a free port; each look counts for that request alone."""
    monkeypatch.setattr(health, "_FRESH", 0.0)
    return lambda trouble: answering(("127.0.0.1", 0), trouble, ABOUT)


def ask(url: str, method: str = "GET", path: str = "/") -> tuple[int, bytes]:
    connection = HTTPConnection(str(urlsplit(url).netloc), timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def answers(url: str) -> bool:
    try:
        return ask(url)[0] == 200
    except ConnectionError:
        return False


def raw(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


def test_what_is_told(told: Answering) -> None:
    reasons: list[str | None] = [None]
    with told(lambda: reasons[-1]) as url:
        for path in ("/", "/health?x=1"):
            status, body = ask(url, path=path)
            assert (status, json.loads(body)) == (200, {"status": "ok", **ABOUT})
        reasons.append("no postgresql://me:geheim@host/x today")
        status, body = ask(url)
        reason = "no postgresql://me:***@host/x today"
        assert (status, json.loads(body)) == (503, {"status": "unavailable", "reason": reason, **ABOUT})
        assert ask(url, "HEAD") == (503, b"")
        assert ask(url, "POST")[0] == 501
    with pytest.raises(ConnectionRefusedError):
        ask(url)


def test_a_look_that_fails_is_no_health(told: Answering) -> None:
    def fail() -> str | None:
        raise KeyError("odd")

    with told(fail) as url:
        status, body = ask(url)
    assert (status, json.loads(body)["reason"]) == (503, "KeyError: 'odd'")


def test_a_database_that_hangs_is_asked_once_and_holds_up_no_answer(told: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_PATIENCE", 0.01)
    go_on, looks = threading.Event(), []

    def hang() -> str | None:
        looks.append(1)
        go_on.wait(60)
        return None

    with told(hang) as url:
        for _ in range(3):
            status, body = ask(url)
            assert (status, json.loads(body)["reason"]) == (503, "the database has not answered within 0.01 seconds")
        assert len(looks) == 1
        go_on.set()
        monkeypatch.setattr(health, "_PATIENCE", 60.0)
        assert ask(url)[0] == 200


def test_one_look_answers_what_is_asked_in_its_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_FRESH", 600.0)
    looks: list[int] = []
    with answering(("127.0.0.1", 0), lambda: looks.append(1), ABOUT) as url:
        assert [ask(url)[0] for _ in range(5)] == [200] * 5
    assert len(looks) == 1


def test_clients_that_say_nothing_are_cut_off_and_few(told: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_AT_ONCE", 2)
    monkeypatch.setattr(health, "_LONGEST", 0.2)
    with told(lambda: None) as url, ExitStack() as stack:
        slow = [stack.enter_context(raw(url)) for _ in range(2)]
        for one in slow:
            one.sendall(b"GET / HT")
        assert [one.recv(100) for one in slow] == [b"", b""]  # after the longest time
        assert eventually(lambda: answers(url))  # their threads end a moment later


def test_a_request_too_many_is_closed(told: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_AT_ONCE", 1)
    began, go_on = threading.Event(), threading.Event()

    def hang() -> str | None:
        began.set()
        go_on.wait(60)
        return None

    with told(hang) as url, raw(url) as first:
        first.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert began.wait(60)
        with raw(url) as second:
            assert second.recv(100) == b""
        go_on.set()
        assert first.recv(100).startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize(
    "request_", [b"\x00\xff\r\n\r\n", b"GET /\x1b[2J HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200]
)
def test_what_is_no_request(told: Answering, request_: bytes) -> None:
    with told(lambda: None) as url:
        with raw(url) as odd:
            odd.sendall(request_)
            said = odd.recv(10_000)
        assert any(status in said for status in (b"400", b"431", b"505"))
        assert ask(url)[0] == 200


def test_an_address_in_use_is_told(told: Answering) -> None:
    with told(lambda: None) as url:
        port: Any = urlsplit(url).port
        with pytest.raises(Failed, match=f"--health 127.0.0.1:{port}: Address already in use"):
            answering(("127.0.0.1", port), lambda: None, ABOUT).__enter__()
