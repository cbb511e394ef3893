"""`tx.programs`: the repositories of the domain."""

from persist.db.work import Work
from persist.programs.agents import Agents
from persist.programs.bindings import Bindings
from persist.programs.executions import ProgramExecutions
from persist.programs.imports import Imports
from persist.programs.runs import ProgramRuns


class Programs:
    """Runs of programs, their statements and values, the agents that remember, and what they import."""

    def __init__(self, work: Work) -> None:
        self.runs = ProgramRuns(work)
        self.executions = ProgramExecutions(work)
        self.bindings = Bindings(work)
        self.agents = Agents(work)
        self.imports = Imports(work)
