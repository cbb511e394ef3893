"""`tx.programs`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, F, on_demand
from persist.programs.verbs.agents import Agents
from persist.programs.verbs.bindings import Bindings
from persist.programs.verbs.executions import ProgramExecutions
from persist.programs.verbs.runs import Imports, ProgramRuns
from persist.programs.verbs.subagents import Subagents


class Programs(Domain[F]):
    """Runs of programs, their statements and values, persistent agents, and imported programs."""

    runs = on_demand(ProgramRuns[F])
    executions = on_demand(ProgramExecutions[F])
    bindings = on_demand(Bindings[F])
    agents = on_demand(Agents[F])
    imports = on_demand(Imports[F])
    subagents = on_demand(Subagents[F])
