"""The scripts of `persist grants`, and how each begins."""

from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from persist.cli import main
from persist.db.dialects.roles import RoleKind
from persist.errors import InvalidValue
from persist.schema.grants import grant_script, tenant_removal_script, tenant_script
from tests.distributed_server import takes_triggers


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00", "ä" * 40, 5])
def test_names_that_no_role_has(name: Any) -> None:
    with pytest.raises(InvalidValue):
        tenant_script(name)
    with pytest.raises(InvalidValue):
        tenant_removal_script(name)
    with pytest.raises(InvalidValue):
        grant_script(RoleKind.APP, owner=name)


def test_the_command_prints_the_script() -> None:
    shown = CliRunner().invoke(main, ["grants", "--role", "app", "--name", "mine"])
    assert shown.output == grant_script(RoleKind.APP, role="mine")
    every = CliRunner().invoke(main, ["grants"]).output
    assert [f'"persist_{kind}"' in every for kind in ("owner", "app", "read_only", "watcher")] == [True] * 4
    assert CliRunner().invoke(main, ["grants", "--tenant", "acme"]).output == tenant_script("acme")
    assert CliRunner().invoke(main, ["grants", "--tenant", "acme", "--remove"]).output == tenant_removal_script("acme")
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
