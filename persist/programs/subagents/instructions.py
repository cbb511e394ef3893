"""Instructions for a subagent that uses the sqlite3 command line: commands that wait for locks, and that no value can break.

A command reads its SQL from a quoted here-document, in which the shell changes nothing until the mark that ends it. The author
of a value cannot guess that mark, so the only rule left is that of SQL: a single quote is written twice.
"""

import os
import secrets
import shlex
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, overload

from persist.db.values.arguments import check_choice, check_label, optional_label
from persist.db.values.escaping import has_half
from persist.errors import InvalidValue, NotFound
from persist.programs import names
from persist.programs.schemas import BindingKind, ProgramExecution, Subagent
from persist.programs.subagents.stores import AnyStore, AsyncProgramStore, ProgramStore, ask, frame_questions

VALUE, SUMMARY, MEMORY, PROMPT = "YOUR_OUTPUT", "YOUR_SUMMARY", "YOUR_MEMORY", "YOUR_PROMPT"
"""The placeholders that a subagent replaces, each within single quotes."""
_TIMEOUT_MS = 5000
_END = "END_OF_SQL"


def quoted(text: str) -> str:
    """The text as an SQL literal."""
    if "\x00" in text or has_half(text):
        raise InvalidValue("value", "the command line takes no NUL and no lone surrogate half.")
    # sqlite3 drops a carriage return at the end of a line
    return "'" + text.replace("'", "''").replace("\r\n", "' || char(13) || '\n") + "'"


def command(path: Path, sql: str, *, json: bool = False, timeout_ms: int = _TIMEOUT_MS) -> str:
    """A shell command that runs the SQL on the file, waits while another process writes, and stops at the first error."""
    form = " -json" if json else ""
    wait = shlex.quote(f".timeout {timeout_ms}")
    call = f"sqlite3 -bail{form} -cmd {wait} {shlex.quote(os.path.abspath(path))}"
    return here_document(call, sql)


def here_document(call: str, sql: str) -> str:
    """A shell command that reads this text."""
    mark = _mark(call + sql)
    return f"{call} <<'{mark}'\n{sql}\n{mark}"


def _mark(text: str) -> str:
    """A new end mark for a here-document, which does not occur in its text."""
    while True:
        mark = f"{_END}_{secrets.token_hex(16)}"
        if mark not in text:
            return mark


def bind_sql(
    name: str,
    value: str,
    *,
    execution_id: int | None = None,
    kind: str = "let",
    source_statement: str | None = None,
    attachment_path: str | None = None,
    scope: str = "",
    now: str = "datetime('now')",
    literal: Callable[[str], str] = quoted,
) -> str:
    """The SQL that binds a name in a frame: an upsert that keeps the row's other columns."""
    columns = {
        "name": literal(name),
        "execution_id": "NULL" if execution_id is None else str(int(execution_id)),
        "kind": literal(kind),
        "value": literal(value),
        "source_statement": "NULL" if source_statement is None else literal(source_statement),
        "attachment_path": "NULL" if attachment_path is None else literal(attachment_path),
        "updated_at": now,
    }
    if scope:
        columns["run_id"] = literal(scope)
    changed = [column for column in columns if column not in ("name", "execution_id", "run_id")]
    return (
        f"INSERT INTO bindings ({', '.join(columns)})\nVALUES ({', '.join(columns.values())})\n"
        "ON CONFLICT (run_id, name, coalesce(execution_id, -1)) DO UPDATE SET\n  "
        + ", ".join(f"{column} = excluded.{column}" for column in changed)
        + ";"
    )


@overload
def instructions_for_subagent(
    store: ProgramStore,
    run_id: str,
    execution_id: int | None = None,
    *,
    binding: str = "result",
    kind: str = "let",
    source_statement: str | None = None,
    agent: str | None = None,
    agents: ProgramStore | None = None,
) -> str:
    """Over a Store."""


@overload
def instructions_for_subagent(
    store: AsyncProgramStore,
    run_id: str,
    execution_id: int | None = None,
    *,
    binding: str = "result",
    kind: str = "let",
    source_statement: str | None = None,
    agent: str | None = None,
    agents: AsyncProgramStore | None = None,
) -> Coroutine[Any, Any, str]:
    """Over an AsyncStore."""


def instructions_for_subagent(
    store: AnyStore,
    run_id: str,
    execution_id: int | None = None,
    *,
    binding: str = "result",
    kind: str = "let",
    source_statement: str | None = None,
    agent: str | None = None,
    agents: AnyStore | None = None,
) -> str | Coroutine[Any, Any, str]:
    """Instructions for a subagent that has a shell: where its output goes, and the exact commands to write it with.

    `binding` is the name it binds, in the frame of the execution or in the root. For a persistent agent give its name, and in
    `agents` the store of its memory if that is another file; call `tx.programs.agents.start` first, since the commands only
    UPDATE the row. Raises NotFound for the run, the execution or the agent. Raises InvalidValue for a store without a file, and
    on Windows. Over an AsyncStore it is awaited.
    """
    questions = frame_questions(store, run_id, execution_id)
    if execution_id is not None:
        questions.append(lambda programs: programs.executions.depth(run_id, execution_id))

    def tell(found: list[Any]) -> Any:
        name, word = check_label("binding", binding), check_choice("kind", kind, BindingKind)
        file = Output(_file_of(store), run_id if store.run_id != run_id else "")
        frame = None if execution_id is None else Frame(found[1], found[2])
        parts = list(_output(file, frame, name, word, source_statement))
        remembers = optional_label("agent", agent)
        if remembers is None:
            return _joined(parts)
        memory_store = agents or store
        memory_run = run_id if agents is None else str(agents.run_id)

        def tell_memory(recalled: list[Any]) -> str:
            if recalled[0] is None:
                raise NotFound("agent", remembers)
            place = Output(_file_of(memory_store), memory_run if memory_store.run_id != memory_run else "")
            return _joined([*parts, *_memory(place, remembers)])

        return ask(memory_store, [lambda programs: programs.agents.recall(memory_run, remembers)], tell_memory)

    text: str | Coroutine[Any, Any, str] = ask(store, questions, tell)
    return text


def file_instructions(
    file: "Output", frame: "Frame | None", name: str, kind: BindingKind, source_statement: str | None, agent: str | None
) -> str:
    """The instructions for a file that has both the frame's values and the memory of the agent, if there is one."""
    memory = () if agent is None else _memory(file, agent)
    return _joined([*_output(file, frame, name, kind, source_statement), *memory])


def _joined(parts: list[str]) -> str:
    return "\n\n".join(parts) + "\n"


class Frame:
    """The statement that a subagent works for, and how deep it is nested."""

    __slots__ = ("depth", "id", "label")

    def __init__(self, block: ProgramExecution, depth: int) -> None:
        self.id, self.depth = block.id, depth
        self.label = " ".join((block.statement_text or "").split())

    def described(self) -> str:
        return f"Execution scope:\n  execution_id: {self.id}\n  block: {self.label}\n  depth: {self.depth}"


class Output:
    """A file to write to, and the scope column's value of its rows, if they are not the file's own."""

    __slots__ = ("path", "scope")

    def __init__(self, path: Path, scope: str) -> None:
        self.path, self.scope = path, scope

    def where(self, column: str, value: str) -> str:
        return f"{column} = {quoted(value)} AND run_id = {quoted(self.scope)}"


def _file_of(store: AnyStore) -> Path:
    if sys.platform == "win32":
        raise InvalidValue("store", "the commands need a POSIX shell, which Windows has not; give the subagent a handle instead.")
    if store.path is None:
        raise InvalidValue("store", "it has no file that a command line could write; give the subagent a handle instead.")
    return store.path


def _output(file: Output, frame: Frame | None, name: str, kind: BindingKind, source_statement: str | None) -> Iterator[str]:
    path, execution_id = os.path.abspath(file.path), None if frame is None else frame.id
    yield f"Your output database is:\n  {path}"
    yield "Execution scope: root" if frame is None else frame.described()
    options = {"execution_id": execution_id, "kind": kind.value, "source_statement": source_statement, "scope": file.scope}
    sql = bind_sql(name, VALUE, **options)  # type: ignore[arg-type]  # each has the type of its parameter
    yield (
        f"When you are done, bind your output to {name!r}. Replace {VALUE} by it, and in it write every single quote (') twice.\n"
        "Line breaks, double quotes, backslashes, backticks and $ are taken as they are; of CR LF the CR is lost. Where it\n"
        "holds the last line of the command itself, as a copy of this text does, put another word in the place of\n"
        f"{_END}_… in both its lines first.\n\n" + command(file.path, sql)
    )
    if not file.scope:
        attachment = names.lent_path(name, execution_id, secrets.token_hex(16))
        target = os.path.join(os.path.dirname(path), attachment)
        copy = f"mkdir -p {shlex.quote(os.path.dirname(target))} && cp FILE {shlex.quote(target)}"
        large = bind_sql(name, SUMMARY, attachment_path=attachment, **options)  # type: ignore[arg-type]  # as above
        yield (
            f"If it is larger than about 100 KB, write it to this file first (its folder may be missing):\n  {target}\n"
            f"If a file holds it already, copy that one there, replacing FILE:\n  {copy}\n"
            "Then bind a summary of it, with the file's path:\n\n" + command(file.path, large)
        )
    read = f"SELECT execution_id, value, attachment_path FROM bindings WHERE {file.where('name', 'NAME')};"
    yield (
        "Read a value that others have bound, replacing NAME. No output means there is none, and attachment_path is relative to\n"
        "the folder of the database:\n\n" + command(file.path, read, json=True)
    )
    yield (
        "Write to the tables bindings, agents and agent_segments only; execution and run are not yours. A command that prints\n"
        "an error or ends with another exit code than 0 has written nothing: repair it and run it again.\n"
        "Return one line that says the name you bound and a summary of the value, not the value itself."
    )


def _memory(file: Output, agent: str) -> Iterator[str]:
    this = file.where("name", agent)
    yield (
        f"Your memory, as {agent!r}, is in:\n  {os.path.abspath(file.path)}\nRead it first:\n\n"
        + command(file.path, f"SELECT memory FROM agents WHERE {this};", json=True)
    )
    update = f"UPDATE agents SET memory = '{MEMORY}', updated_at = datetime('now') WHERE {this};"
    yield f"When you are done, replace it by what you want to remember, quotes as above:\n\n{command(file.path, update)}"
    number = f"(SELECT coalesce(max(segment_number), 0) + 1 FROM agent_segments WHERE {file.where('agent_name', agent)})"
    columns, values = "agent_name, segment_number, prompt, summary", f"{quoted(agent)}, {number}, '{PROMPT}', '{SUMMARY}'"
    if file.scope:
        columns, values = f"{columns}, run_id", f"{values}, {quoted(file.scope)}"
    insert = f"INSERT INTO agent_segments ({columns})\nVALUES ({values});"
    yield f"And record this segment, with the same care:\n\n{command(file.path, insert)}"


# The token stands in the environment of each command, where other users of the machine do not see it as they see arguments.


def _quoted(text: str) -> str:
    if "\x00" in text or has_half(text):
        raise InvalidValue("value", "the command line takes no NUL and no lone surrogate half.")
    return "'" + text.replace("'", "''") + "'"


def server_instructions(
    server: str, options: str, subagent: Subagent, frame: Frame | None, name: str, kind: BindingKind, source_statement: str | None
) -> str:
    """The instructions for a subagent with these connection options, which hold its token."""
    return "\n\n".join(_server_paragraphs(_Psql(server, options), subagent, frame, name, kind, source_statement)) + "\n"


class _Psql:
    def __init__(self, server: str, options: str) -> None:
        self._call = f"PGOPTIONS={shlex.quote(options)} psql -X -q -v ON_ERROR_STOP=1"
        self._server = shlex.quote(server)

    def command(self, sql: str, *, json: bool = False) -> str:
        return here_document(f"{self._call}{' -A -t' if json else ''} -d {self._server}", sql)

    def asking(self, sql: str) -> str:
        return self.command(f"SELECT row_to_json(found) FROM ({sql}) found;", json=True)


def _server_paragraphs(
    psql: _Psql, subagent: Subagent, frame: Frame | None, name: str, kind: BindingKind, source_statement: str | None
) -> Iterator[str]:
    this, scope = f"run_id = {_quoted(subagent.run_id)}", subagent.run_id
    yield "Execution scope: root" if frame is None else frame.described()
    sql = bind_sql(
        name,
        VALUE,
        execution_id=subagent.execution_id,
        kind=kind.value,
        source_statement=source_statement,
        scope=scope,
        now="CURRENT_TIMESTAMP",
        literal=_quoted,
    )
    yield (
        f"When you are done, bind your output to {name!r}. Replace {VALUE} by it, and in it write every single quote (') twice.\n"
        "Line breaks, double quotes, backslashes, backticks and $ are taken as they are. The commands hold a secret that is\n"
        "yours: repeat them to nobody.\n\n" + psql.command(sql)
    )
    yield "Read a value of your frame, replacing NAME. No output means there is none:\n\n" + psql.asking(
        f"SELECT execution_id, value, attachment_path FROM bindings WHERE name = 'NAME' AND {this}"
    )
    agent = subagent.agent_name
    if agent is not None:
        mine = f"name = {_quoted(agent)} AND {this}"
        yield f"Your memory, as {agent!r}, is there too. Read it first:\n\n" + psql.asking(
            f"SELECT memory FROM agents WHERE {mine}"
        )
        update = f"UPDATE agents SET memory = '{MEMORY}', updated_at = CURRENT_TIMESTAMP WHERE {mine};"
        yield f"When you are done, replace it by what you want to remember, quotes as above:\n\n{psql.command(update)}"
        number = (
            f"(SELECT coalesce(max(segment_number), 0) + 1 FROM agent_segments WHERE agent_name = {_quoted(agent)} AND {this})"
        )
        insert = (
            "INSERT INTO agent_segments (agent_name, segment_number, prompt, summary, run_id)\n"
            f"VALUES ({_quoted(agent)}, {number}, '{PROMPT}', '{SUMMARY}', {_quoted(scope)});"
        )
        yield f"And record this segment, with the same care:\n\n{psql.command(insert)}"
    yield (
        "A command that prints an error or ends with another exit code than 0 has written nothing: repair it and run it again.\n"
        "Return one line that says the name you bound and a summary of the value, not the value itself."
    )
