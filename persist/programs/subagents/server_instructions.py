"""Instructions for a subagent that reaches a server with psql: the statements of `instructions`, in which the rows say their run.

The token stands in the environment of each command, where other users of the machine do not see it as they see arguments.
"""

import shlex
from collections.abc import Iterator

from persist.db.values.escaping import has_half
from persist.errors import InvalidValue
from persist.programs.schemas import BindingKind, Subagent
from persist.programs.subagents.instructions import MEMORY, PROMPT, SUMMARY, VALUE, Frame, bind_sql, here_document


def _quoted(text: str) -> str:
    if "\x00" in text or has_half(text):
        raise InvalidValue("value", "the command line takes no NUL and no lone surrogate half.")
    return "'" + text.replace("'", "''") + "'"


def told_of_server(
    server: str,
    options: str,
    subagent: Subagent,
    frame: Frame | None,
    name: str,
    kind: BindingKind,
    source_statement: str | None,
) -> str:
    """The instructions of a subagent with these options of its connection, which hold its token."""
    return "\n\n".join(_told(_Psql(server, options), subagent, frame, name, kind, source_statement)) + "\n"


class _Psql:
    def __init__(self, server: str, options: str) -> None:
        self._call = f"PGOPTIONS={shlex.quote(options)} psql -X -q -v ON_ERROR_STOP=1"
        self._server = shlex.quote(server)

    def command(self, sql: str, *, json: bool = False) -> str:
        return here_document(f"{self._call}{' -A -t' if json else ''} -d {self._server}", sql)

    def asking(self, sql: str) -> str:
        return self.command(f"SELECT row_to_json(found) FROM ({sql}) found;", json=True)


def _told(
    psql: _Psql, subagent: Subagent, frame: Frame | None, name: str, kind: BindingKind, source_statement: str | None
) -> Iterator[str]:
    this, scope = f"run_id = {_quoted(subagent.run_id)}", subagent.run_id
    yield "Execution scope: root" if frame is None else frame.told()
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
