"""Programs: the state of running programs, shared by a virtual machine and its subagents, in one file or one server."""

from typing import TYPE_CHECKING, Any

from persist.programs.instructions import instructions_for_subagent
from persist.programs.joins import Joined, join
from persist.programs.retries import retry_delay
from persist.programs.subagents import SubagentHandle, audit, subagent

if TYPE_CHECKING:
    from persist.run_files import agents_file, create_run_file, list_run_files, open_run_file

__all__ = [
    "Joined",
    "SubagentHandle",
    "agents_file",
    "audit",
    "create_run_file",
    "instructions_for_subagent",
    "join",
    "list_run_files",
    "open_run_file",
    "retry_delay",
    "subagent",
]


def __getattr__(name: str) -> Any:
    # these open stores, and a store knows this package
    if name in ("agents_file", "create_run_file", "list_run_files", "open_run_file"):
        from persist import run_files

        return getattr(run_files, name)
    raise AttributeError(f"module 'persist.programs' has no attribute {name!r}")
