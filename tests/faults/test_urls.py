"""URLs of Postgres servers: several hosts, folders of sockets, and options of other programs."""

import json
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from alembic.config import main as alembic
from click.testing import CliRunner
from sqlalchemy import make_url

from persist import AsyncTenants, Settings, Store, Tenants
from persist.cli import main
from persist.db.dialects.backends import dialect_for
from persist.db.statements.schema_version import HEAD
from persist.errors import InvalidValue
from persist.schema.migrate import current, upgrade
from tests.cases import each
from tests.markdown import ROOT


def other_spellings(url: str) -> list[str]:
    """URLs of the same database as the server's own library knows them, with a host that nobody is at in front."""
    parsed = make_url(url)
    host, port = parsed.query.get("host", parsed.host), parsed.port
    user = f"{quote(parsed.username or '', safe='')}{f':{quote(str(parsed.password))}' if parsed.password else ''}@"
    at = quote(str(host), safe="") + (f":{port}" if port else "")
    several = f"postgresql://{user}%2Fnowhere:1,{at}/{parsed.database}?target_session_attrs=read-write"
    one = f"postgresql://{user}{at}/{parsed.database}"
    without_port = f"postgresql://{user}{quote(str(host), safe='')}:/{parsed.database}{f'?port={port}' if port else ''}"
    return [one, several, several.replace("postgresql:", "postgres:"), without_port]


def test_hosts_are_read_as_the_servers_library_reads_them(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By stores, what listens, tenants, commands and alembic."""
    upgrade(postgres_url)
    for number, url in enumerate(other_spellings(postgres_url)):
        with Store.open(url, listen_url=url, events=True) as store:
            store.chat.sessions.create(id=f"ses_{number}", agent="build", model={})
            assert [event.seq for event in store.watch(f"ses_{number}", timeout=0)] == [1]
        assert current(url) == HEAD
        with Tenants(url) as tenants:
            assert tenants.list().items == []
        listed = CliRunner().invoke(main, ["ls", url, "--json"])
        assert (listed.exit_code, len(json.loads(listed.stdout)["items"]) > 0) == (0, True), listed.output
        monkeypatch.setenv("PERSIST_DATABASE_URL", url)
        monkeypatch.chdir(ROOT)
        alembic(["current", "--check-heads"])


@each(
    ("option", "advice"),
    [
        ("prepare_threshold=0", "prepares its own"),
        ("port=abc", "not made of numbers"),
        ("row_factory=x", "psycopg.connect"),
        ("cursor_factory=x", "psycopg.connect"),
        ("context=x", "psycopg.connect"),
        ("autocommit=true", "psycopg.connect"),
        ("conninfo=host%3Da", "psycopg.connect"),
        ("pgbouncer=true", "PERSIST_POOLER"),
        ("schema=public", "PERSIST_SCHEMA_NAME"),
        ("replication=database", "replication"),
        ("sslmod=require", "libpq"),
        ("sslmode=require&sslmode=disable", "twice"),
    ],
)
def test_an_option_of_others_is_refused_with_what_to_do(option: str, advice: str) -> None:
    url = f"postgresql://user:secret@127.0.0.1:1/db?connect_timeout=1&{option}"
    opened: list[Callable[[], Any]] = [
        lambda: Store.open(url),
        lambda: AsyncTenants(url),
        lambda: Tenants(url),
        lambda: Store.open("sqlite:///:memory:", listen_url=url),
        lambda: upgrade(url),
    ]
    for open_it in opened:
        with pytest.raises(InvalidValue) as refused:
            open_it()
        assert advice in str(refused.value)
        assert option.partition("=")[0] in str(refused.value)
        assert "secret" not in str(refused.value)


@each(
    "option",
    [
        "sslmode=nonsense",
        "target_session_attrs=bogus",
        "gssencmode=bogus",
        "min_protocol_version=9",
        "connect_timeout=abc",
        "service=nope",
        "hostaddr=bad",
        "port=99999",
    ],
)
def test_a_value_that_the_servers_library_refuses_is_no_outage(postgres_url: str, option: str) -> None:
    url = f"{other_spellings(postgres_url)[0]}?{option}"
    opened: list[Callable[[], Any]] = [lambda: Store.open(url), lambda: Tenants(url).list(), lambda: upgrade(url)]
    for open_it in opened:
        with pytest.raises(InvalidValue) as refused:
            open_it()
        assert refused.value.path == "url"
        assert option.partition("=")[2] in str(refused.value)


def test_every_argument_of_the_driver_is_an_option_of_the_server_or_refused() -> None:
    for name, one in signature(psycopg.connect).parameters.items():
        if one.kind is not Parameter.VAR_KEYWORD:
            with pytest.raises(InvalidValue, match=name):
                dialect_for(f"postgresql://h/db?{name}=1", Settings())
    for option in psycopg.pq.Conninfo.get_defaults():
        if (name := option.keyword.decode()) != "replication":
            dialect_for(f"postgresql://h/db?{name}=1", Settings())
