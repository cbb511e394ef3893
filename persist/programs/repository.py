"""`tx.programs`: the repositories of the domain."""

from persist.db.transactions.repository import TransactionPerVerb
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.programs.verbs.agents import Agents
from persist.programs.verbs.bindings import Bindings
from persist.programs.verbs.executions import ProgramExecutions
from persist.programs.verbs.imports import Imports
from persist.programs.verbs.runs import ProgramRuns
from persist.programs.verbs.subagents import Subagents


class Programs:
    """Runs of programs, their statements and values, persistent agents, and imported programs."""

    def __init__(self, work: UnitOfWork | TransactionPerVerb) -> None:
        self.runs = ProgramRuns(work)
        self.executions = ProgramExecutions(work)
        self.bindings = Bindings(work)
        self.agents = Agents(work)
        self.imports = Imports(work)
        self.subagents = Subagents(work)
