"""The scripts of `persist grants`, and how each begins."""

import secrets
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from persist.cli import main
from persist.db.dialects.subagent_roles import RoleKind
from persist.errors import InvalidValue
from persist.schema.grants import grant_script, tenant_removal_script, tenant_script
from tests.cases import each
from tests.distributed_server import takes_triggers

NAMES = [
    "x$$;ROLLBACK;DROP SCHEMA persist CASCADE;--",
    "x$body0$;ROLLBACK;DROP SCHEMA persist CASCADE;--$$",
    "a$$b",
    "$$",
    "$",
    "a$b$c",
    "$body0",
    "\\';ROLLBACK;DROP SCHEMA persist CASCADE;--",
    "\\",
    "'\"; DROP SCHEMA persist CASCADE; --",
    "%s%I$1:name",
]
"""Names of roles that would end a quote of a script, some of them those of its bodies; all of them are legal."""


@each("ending", NAMES)
def test_no_name_ends_a_quote(postgres_url: str, ending: str) -> None:
    """Each script leaves the schema and its tables, and names the role as it is; also where a backslash escapes in literals."""
    name = f"{secrets.token_hex(4)}{ending}"
    with psycopg.connect(postgres_url) as raw:
        triggers = takes_triggers(postgres_url)
        scripts = [[grant_script(kind, role=name)] for kind in (RoleKind.OWNER, RoleKind.WATCHER)]
        scripts += [[grant_script(kind, role=name, owner=raw.info.user)] for kind in (RoleKind.APP, RoleKind.READ_ONLY)]
        scripts.append([grant_script(RoleKind.OWNER, role=name), grant_script(RoleKind.APP, role=raw.info.user, owner=name)])
        if triggers:
            scripts += [[grant_script(RoleKind.SUBAGENT, role=name)]]
            scripts += [[tenant_script(name, owner=raw.info.user), tenant_removal_script(name)]]
        for run_together in scripts:
            for conforming in ("on", "off"):
                raw.execute(f"SET LOCAL standard_conforming_strings = {conforming}")
                before = _tables(raw)
                for script in run_together:
                    raw.execute(script.removeprefix("BEGIN;").removesuffix("COMMIT;\n").encode())
                assert _tables(raw) == before
                assert raw.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).rowcount == 1
                raw.rollback()


def _tables(raw: psycopg.Connection[Any]) -> list[Any]:
    return raw.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'persist' ORDER BY tablename").fetchall()


@each("name", ["", "a\nb", "a\x00", "ä" * 40, 5])
def test_names_that_no_role_has(name: Any) -> None:
    with pytest.raises(InvalidValue):
        tenant_script(name)
    with pytest.raises(InvalidValue):
        tenant_removal_script(name)
    with pytest.raises(InvalidValue):
        grant_script(RoleKind.APP, owner=name)


def test_the_command_prints_the_script() -> None:
    shown = CliRunner().invoke(main, ["grants", "--role", "app", "--name", "mine"])
    begins = "\\set ON_ERROR_STOP on\n"
    assert shown.output == begins + grant_script(RoleKind.APP, role="mine")
    every = CliRunner().invoke(main, ["grants"]).output
    assert [f'"persist_{kind}"' in every for kind in ("owner", "app", "read_only", "watcher")] == [True] * 4
    assert CliRunner().invoke(main, ["grants", "--tenant", "acme"]).output == begins + tenant_script("acme")
    assert CliRunner().invoke(main, ["grants", "--tenant", "acme", "--remove"]).output == begins + tenant_removal_script("acme")
    assert CliRunner().invoke(main, ["grants", "--remove"]).exit_code == 2
    assert CliRunner().invoke(main, ["grants", "--tenant", "acme", "--role", "app"]).exit_code == 2
    assert CliRunner().invoke(main, ["grants", "--name", "acme"]).exit_code == 2


def test_a_cluster_takes_no_rows_of_their_own(postgres_url: str) -> None:
    """A script with triggers or policies ends at its first statement there, which says what there is instead."""
    scripts = {tenant_script("acme"): "a schema of its own", grant_script(RoleKind.SUBAGENT): 'isolation="file"'}
    for script, instead in scripts.items():
        with psycopg.connect(postgres_url) as raw:
            refuses = script.splitlines()[1].encode()
            if takes_triggers(postgres_url):
                raw.execute(refuses)
            else:
                with pytest.raises(psycopg.errors.RaiseException, match=instead):
                    raw.execute(refuses)
