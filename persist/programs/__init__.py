"""Programs: the state of running programs, shared by a virtual machine and its subagents, in one file or one server."""

from typing import TYPE_CHECKING

from persist.later import offers

if TYPE_CHECKING:
    from persist.programs.instructions import instructions_for_subagent
    from persist.programs.joins import Joined, join
    from persist.programs.retries import retry_delay
    from persist.programs.subagents import SubagentHandle, audit, subagent
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

# what opens stores is above the domains, and is named beside them
__getattr__ = offers(
    __name__,
    {
        "Joined": "persist.programs.joins",
        "SubagentHandle": "persist.programs.subagents",
        "agents_file": "persist.run_files",
        "audit": "persist.programs.subagents",
        "create_run_file": "persist.run_files",
        "instructions_for_subagent": "persist.programs.instructions",
        "join": "persist.programs.joins",
        "list_run_files": "persist.run_files",
        "open_run_file": "persist.run_files",
        "retry_delay": "persist.programs.retries",
        "subagent": "persist.programs.subagents",
    },
)
