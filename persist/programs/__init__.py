"""Programs: the state of running programs, shared by a virtual machine and its subagents, in one file or one server."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.programs.subagents.handles import SubagentHandle, audit, subagent
    from persist.programs.subagents.instructions import instructions_for_subagent
    from persist.programs.subagents.joins import Joined, join
    from persist.programs.subagents.retries import retry_delay
    from persist.single_owner_files.run_files import agents_file, create_run_file, list_run_files, open_run_file

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

# `single_owner_files` opens stores, a layer above the domains; its functions are exported here too
__getattr__ = lazy_names(
    __name__,
    {
        "Joined": "persist.programs.subagents.joins",
        "SubagentHandle": "persist.programs.subagents.handles",
        "agents_file": "persist.single_owner_files.run_files",
        "audit": "persist.programs.subagents.handles",
        "create_run_file": "persist.single_owner_files.run_files",
        "instructions_for_subagent": "persist.programs.subagents.instructions",
        "join": "persist.programs.subagents.joins",
        "list_run_files": "persist.single_owner_files.run_files",
        "open_run_file": "persist.single_owner_files.run_files",
        "retry_delay": "persist.programs.subagents.retries",
        "subagent": "persist.programs.subagents.handles",
    },
)
