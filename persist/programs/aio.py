"""`tx.programs` on the async face: every verb of the repositories as a coroutine."""

from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable
from persist.programs.repository import Programs
from persist.programs.verbs.agents import Agents
from persist.programs.verbs.bindings import Bindings
from persist.programs.verbs.executions import ProgramExecutions
from persist.programs.verbs.imports import Imports
from persist.programs.verbs.runs import ProgramRuns
from persist.programs.verbs.subagents import Subagents


class AsyncProgramRuns(AsyncRepository[ProgramRuns]):
    """See ProgramRuns."""

    create = awaitable(ProgramRuns.create)
    get = awaitable(ProgramRuns.get)
    list = awaitable(ProgramRuns.list)
    finish = awaitable(ProgramRuns.finish)
    resume = awaitable(ProgramRuns.resume)
    seen = awaitable(ProgramRuns.seen)
    resume_point = awaitable(ProgramRuns.resume_point)
    audit = awaitable(ProgramRuns.audit)


class AsyncProgramExecutions(AsyncRepository[ProgramExecutions]):
    """See ProgramExecutions."""

    begin = awaitable(ProgramExecutions.begin)
    get = awaitable(ProgramExecutions.get)
    list = awaitable(ProgramExecutions.list)
    start = awaitable(ProgramExecutions.start)
    update = awaitable(ProgramExecutions.update)
    complete = awaitable(ProgramExecutions.complete)
    fail = awaitable(ProgramExecutions.fail)
    skip = awaitable(ProgramExecutions.skip)
    children = awaitable(ProgramExecutions.children)
    depth = awaitable(ProgramExecutions.depth)
    pending_branches = awaitable(ProgramExecutions.pending_branches)
    branches = awaitable(ProgramExecutions.branches)
    set_iteration = awaitable(ProgramExecutions.set_iteration)
    record_retry = awaitable(ProgramExecutions.record_retry)


class AsyncBindings(AsyncRepository[Bindings]):
    """See Bindings."""

    bind = awaitable(Bindings.bind)
    bind_file = awaitable(Bindings.bind_file)
    resolve = awaitable(Bindings.resolve)
    open_file = awaitable(Bindings.open_file)
    get = awaitable(Bindings.get)
    list = awaitable(Bindings.list)
    next_anonymous = awaitable(Bindings.next_anonymous)


class AsyncAgents(AsyncRepository[Agents]):
    """See Agents."""

    start = awaitable(Agents.start)
    remember = awaitable(Agents.remember)
    recall = awaitable(Agents.recall)
    list = awaitable(Agents.list)
    add_segment = awaitable(Agents.add_segment)
    segments = awaitable(Agents.segments)


class AsyncImports(AsyncRepository[Imports]):
    """See Imports."""

    add = awaitable(Imports.add)
    get = awaitable(Imports.get)
    list = awaitable(Imports.list)


class AsyncSubagents(AsyncRepository[Subagents]):
    """See Subagents."""

    start = awaitable(Subagents.start)
    get = awaitable(Subagents.get)
    list = awaitable(Subagents.list)
    end = awaitable(Subagents.end)
    take_in = awaitable(Subagents.take_in)


class AsyncPrograms:
    """See Programs."""

    def __init__(self, work: AsyncWork) -> None:
        programs = Programs(work.work)
        self.runs = AsyncProgramRuns(programs.runs, work)
        self.executions = AsyncProgramExecutions(programs.executions, work)
        self.bindings = AsyncBindings(programs.bindings, work)
        self.agents = AsyncAgents(programs.agents, work)
        self.imports = AsyncImports(programs.imports, work)
        self.subagents = AsyncSubagents(programs.subagents, work)
