"""The scripts of `persist grants`, without a server."""

from typing import Any

import pytest
from click.testing import CliRunner

from persist.cli import main
from persist.db.dialects.roles import RoleKind
from persist.errors import InvalidValue
from persist.schema.grants import grant_script, tenant_removal_script, tenant_script


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
