"""Threads into which other programs wrote are shown, whatever is in them."""

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from persist.cli import main
from persist.integrations.langgraph import PersistSaver
from tests.integrations.langgraph.scenes import checkpoint, config, metadata


@pytest.mark.parametrize("bad", ["5", "null", "[]", '"x"'])
@pytest.mark.parametrize("column", ["versions_json", "metadata_json", "partial_json"])
def test_a_foreign_checkpoint_is_shown(
    call: Callable[..., Any], saver: PersistSaver, execute: Callable[[str], int], database_url: str, column: str, bad: str
) -> None:
    call(saver.put, config("t"), checkpoint("1", {"said": "hi"}, {"said": "1"}), metadata(), {"said": "1"})
    assert execute(f"UPDATE checkpoint_states SET {column} = '{bad}'") == 1
    for command in (["ls", "checkpoints"], ["show", "t"]):
        result = CliRunner().invoke(main, [*command, "--url", database_url])
        assert result.exit_code == 0, result.exception
        assert "t" in result.output
