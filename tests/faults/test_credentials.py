"""A password in a URL is repeated nowhere: not in an error or what led to it, a log record, a repr, or what commands print."""

import io
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import make_url

from persist import AsyncStore, Store
from persist.cli import main
from persist.errors import PersistError
from persist.maintenance import backup, doctor, stats
from persist.schema import migrate
from persist.settings import Settings
from tests.cases import each

SECRET = "s3cret-w0rd"


def with_secret(url: str, **parameters: str) -> str:
    """The URL of a server that asks nobody for a password."""
    return make_url(url).set(password=SECRET).update_query_dict(parameters).render_as_string(hide_password=False)


NOBODY_THERE = f"postgresql://user:{SECRET}@127.0.0.1:1/database"
WRONG = [
    NOBODY_THERE,
    f"{NOBODY_THERE}?password={SECRET}2&sslpassword={SECRET}3",
    f"{NOBODY_THERE}?sslmode=bogus",
    f"{NOBODY_THERE}?bogus=1",
    f"{NOBODY_THERE}?sslrootcert=/nowhere&sslmode=verify-full",
    f"postgresql://user:{SECRET}%2@127.0.0.1:1/database",
    f"postgresql://user:{SECRET}%00@127.0.0.1:1/database",
    f"postgresql://user:un@{SECRET}@localhost/database",
    f"postgresql://user:{SECRET}@localhost:port/database",
    f"postgresql://user@localhost:{SECRET}/database",
    f"postgresql://user:{SECRET}@[::1/database",
    f"postgresql+other://user:{SECRET}@localhost/database",
    f"mysql://user:{SECRET}@localhost/database",
    f"sqlite://user:{SECRET}@/state.db",
    f"sqlite:///state.db?password={SECRET}",
    f"//user:{SECRET}@localhost/database",
]


def everything_said(error: BaseException | None) -> Iterator[str]:
    """By an error and by every one before it, as people and programs see them."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield f"{one} {one!r} {one.args}"
            waiting += [one.__cause__, one.__context__]
    if error is not None:
        yield "".join(traceback.format_exception(error))


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[io.StringIO]:
    """Everything that anybody logs, with tracebacks."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    root.addHandler(handler)
    with caplog.at_level(logging.DEBUG):
        yield text
    root.removeHandler(handler)


DOORS: dict[str, Callable[[str], Any]] = {
    "open": Store.open,
    "check": migrate.check,
    "current": migrate.current,
    "upgrade": migrate.upgrade,
    "listen": lambda url: Store.open("sqlite:///:memory:", listen_url=url).close(),
}


@each("door", DOORS)
@each("number", range(len(WRONG)))
def test_a_url_that_fails(logged: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str, number: int) -> None:
    monkeypatch.chdir(tmp_path)
    error: BaseException | None = None
    try:
        DOORS[door](WRONG[number])
    except PersistError as caught:
        error = caught
    assert error is not None or door == "listen"
    assert SECRET not in " ".join(everything_said(error)) + logged.getvalue()


@each("number", range(len(WRONG)))
def test_a_command_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ["ls", "--url", WRONG[number]],
        ["ls", WRONG[number]],
        ["show", WRONG[number], "--url", WRONG[number]],
        ["copy", WRONG[number], "sqlite:///new.db"],
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code in (1, 2)
        assert SECRET not in result.output


def test_an_older_server(logged: io.StringIO, empty_postgres_url: str) -> None:
    url = with_secret(empty_postgres_url, password=f"{SECRET}2", sslpassword=f"{SECRET}3")
    with pytest.raises(PersistError) as caught:
        Store.open(url)
    assert "persist upgrade --url" in str(caught.value)
    assert SECRET not in " ".join(everything_said(caught.value)) + logged.getvalue()
    assert SECRET not in CliRunner().invoke(main, ["check", "--url", url]).output


def test_a_store_at_work(logged: io.StringIO, postgres_url: str, tmp_path: Path) -> None:
    url = with_secret(postgres_url, sslpassword=f"{SECRET}3")
    said: list[Any] = []
    with Store.open(url) as store:
        with store.read() as tx:
            said += [repr(store), repr(AsyncStore(store)), repr(tx), repr(tx.chat), stats(store), doctor(store)]
        with suppress(PersistError), store.begin() as tx:
            tx.chat.messages.append("nobody", role="user", parts=[])
        with pytest.raises(PersistError) as caught:
            backup(store, tmp_path / "copy.db")
        said += everything_said(caught.value)
    for command in (["stats"], ["doctor"], ["stats", "--json"], ["backup", str(tmp_path / "copy.db")]):
        said.append(CliRunner().invoke(main, [*command, "--url", url]).output)
    leaks = [line for text in said for line in str(text).splitlines() if SECRET in line]
    assert leaks == []
    assert SECRET not in logged.getvalue()


def test_a_setting_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSIST_SCHEMA_NAME", f"not a schema {SECRET}")
    with pytest.raises(PersistError) as caught:
        Settings()
    assert SECRET not in " ".join(everything_said(caught.value))
