"""Persistent agents: their memory, and the segments of their history."""

import logging

from sqlalchemy import func, insert, select, update

from persist.db.expressions.upsert import insert_missing, insert_where, merge, merging
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.own_scope import ScopedValues, stored_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_choice
from persist.db.values.frozen import construct
from persist.errors import NotFound
from persist.programs.models import agents, segments
from persist.programs.schemas import Agent, AgentScope, AgentSegment
from persist.programs.storage.run_rows import IS_THERE, ask_agents_owner, check_found, outlives_runs, this_second

log = logging.getLogger("persist")
List = list
_A, _S = agents.c, segments.c
AGENT = ScopedValues(Agent, agents, "run_id")
_SEGMENT = ScopedValues(AgentSegment, segments, "run_id")
_THIS = (_A.run_id == param("row_run")) & (_A.name == param("row_name"))
GET_AGENT = Statement(select(*AGENT.columns).where(_THIS))
_LOCK = Statement(select(*AGENT.columns).where(_THIS).with_for_update())
ALL_AGENTS = Statement(select(*AGENT.columns).where(_A.run_id == param("run")).order_by(_A.name))
_ADD = Statement(insert_missing(agents, "run_id", "name").returning(*AGENT.columns))
_REMEMBER = Statement(merge(agents, "run_id", "name", memory="new", updated_at="new").returning(*AGENT.columns))
_REMEMBER_IN_RUN = Statement(
    merging(insert_where(agents, IS_THERE), "run_id", "name", memory="new", updated_at="new").returning(*AGENT.columns)
)
_SET = Statement(update(agents).where(_THIS).values(memory=param("text"), updated_at=param("at")))
_ITS_SEGMENTS = (_S.run_id == param("row_run")) & (_S.agent_name == param("row_name"))
_SEGMENTS = Statement(select(*_SEGMENT.columns).where(_ITS_SEGMENTS).order_by(_S.segment_number, _S.id))
_LAST = Statement(select(func.coalesce(func.max(_S.segment_number), 0)).where(_ITS_SEGMENTS))
_GIVEN = ("run_id", "agent_name", "segment_number", "timestamp", "prompt", "summary")
_ADD_SEGMENT = Statement(insert(segments).values(**{name: param(name) for name in _GIVEN}).returning(_S.id))


class Agents(Repository[F]):
    """`tx.programs.agents`. In the file of a project's or a user's agents `run_id` is "project" or "user".

    Writes raise NotFound unless the run exists or the id is one of these two. Agents of deleted runs can still be read.
    """

    _guarded = True

    @writes
    def start(self, run_id: str, name: str, *, resume: bool, scope: str = "execution") -> Agent:
        """Prepare the agent for its next session; call it before the subagent starts, whose commands only UPDATE the row.

        `resume`: keep the memory, NotFound if there is none. Otherwise an existing memory is cleared, with a warning
        in the log, and segments stay. `scope` is that of a new agent. Raises NotFound for the run.
        """
        work = self._work
        label, word = work.label("name", name), check_choice("scope", scope, AgentScope)
        stored = stored_scope(work, "run_id", run_id)
        with work.batch() as batch:
            owner = ask_agents_owner(work, batch, run_id)
            locked = batch.row(_LOCK, row_run=stored, row_name=label)
        check_found(owner, run_id)
        found = None if locked.result is None else AGENT.public(self._work, locked.result)
        if resume:
            if found is None or found.memory is None:
                raise NotFound("memory of the agent", label)
            return found
        if found is None:
            return self._added(stored, label, word) or self._get(run_id, label)
        if found.memory is None:
            return found
        log.warning("agent %r starts fresh in %r although it remembers something, which is cleared", label, run_id)
        return self._set_memory(stored, label, None)

    @writes
    def remember(self, run_id: str, name: str, memory: str, *, scope: str = "execution") -> Agent:
        """Replace the agent's memory; a new agent is created with that scope. Raises NotFound for the run."""
        work = self._work
        label, word = work.label("name", name), check_choice("scope", scope, AgentScope)
        text, stored, now = work.body("memory", memory), stored_scope(work, "run_id", run_id), this_second(work)
        fields = {"run_id": stored, "name": label, "scope": word, "memory": text, "created_at": now, "updated_at": now}
        with work.batch() as batch:  # not its last: what it returns may be unreadable, and then nothing must be committed
            if outlives_runs(run_id, work.runtime.scopes.get("run_id")):
                written = batch.returned(_REMEMBER, **fields)
            else:
                written = batch.returned(_REMEMBER_IN_RUN, row_id=run_id, **fields)
        return AGENT.public(self._work, written.must_exist("program run", run_id))

    @reads
    def recall(self, run_id: str, name: str) -> Agent | None:
        """The agent with its memory, or None."""
        return self._find(run_id, self._work.label("name", name))

    @reads
    def list(self, run_id: str) -> List[Agent]:
        """Every agent of the run, by name."""
        rows = self._work.rows(ALL_AGENTS, run=stored_scope(self._work, "run_id", run_id))
        return [AGENT.public(self._work, row) for row in rows]

    @writes
    def add_segment(self, run_id: str, agent_name: str, *, prompt: str, summary: str) -> AgentSegment:
        """Add an invocation, numbered 1, 2, 3 … per agent. Raises NotFound for the run or the agent."""
        work = self._work
        label = work.label("agent_name", agent_name)
        texts = {"prompt": work.body("prompt", prompt), "summary": work.body("summary", summary)}
        stored = stored_scope(work, "run_id", run_id)
        this = {"row_run": stored, "row_name": label}
        with work.batch() as batch:
            owner = ask_agents_owner(work, batch, run_id)
            locked = batch.row(_LOCK, **this)
            last = batch.row(_LAST, **this)
        check_found(owner, run_id)
        locked.must_exist("agent", label)
        assert last.result is not None
        fields = {"agent_name": label, "segment_number": last.result[0] + 1, "timestamp": this_second(work), **texts}
        with work.batch(last=True) as batch:
            added = batch.returned(_ADD_SEGMENT, run_id=stored, **fields)
        assert added.result is not None
        return construct(AgentSegment, {"id": added.result[0], "run_id": run_id, **fields})

    @reads
    def segments(self, run_id: str, agent_name: str) -> List[AgentSegment]:
        """The agent's invocations in order; empty for an unknown agent."""
        work = self._work
        stored = stored_scope(work, "run_id", run_id)
        rows = work.rows(_SEGMENTS, row_run=stored, row_name=work.label("agent_name", agent_name))
        return [_SEGMENT.public(self._work, row) for row in rows]

    def _find(self, run_id: str, name: str) -> Agent | None:
        stored = stored_scope(self._work, "run_id", run_id)
        row = self._work.row(GET_AGENT, row_run=stored, row_name=name)
        return None if row is None else AGENT.public(self._work, row)

    def _get(self, run_id: str, name: str) -> Agent:
        found = self._find(run_id, name)
        assert found is not None
        return found

    def _added(self, stored: str, name: str, scope: AgentScope) -> Agent | None:
        now = this_second(self._work)
        row = self._work.returned(_ADD, run_id=stored, name=name, scope=scope, memory=None, created_at=now, updated_at=now)
        return None if row is None else AGENT.public(self._work, row)

    def _set_memory(self, stored: str, name: str, text: str | None) -> Agent:
        with self._work.batch(last=True) as batch:
            batch.run(_SET, row_run=stored, row_name=name, text=text, at=this_second(self._work))
            written = batch.row(GET_AGENT, row_run=stored, row_name=name)
        assert written.result is not None
        return AGENT.public(self._work, written.result)
