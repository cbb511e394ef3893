"""Programs: the state of running programs, shared by a virtual machine and its subagents, in one file or one server."""

from persist.lazy_imports import lazy_names

# `single_owner_files` opens stores, a layer above the domains; its functions are exported here too
with lazy_names(globals()):
    from persist.programs.subagents.handles import SubagentHandle, audit, subagent
    from persist.programs.subagents.instructions import instructions_for_subagent
    from persist.programs.subagents.isolation import SubagentFile, SubagentRole, take_in
    from persist.programs.subagents.joins import Joined, join
    from persist.programs.subagents.retries import retry_delay
    from persist.single_owner_files.run_files import agents_file, create_run_file, list_run_files, open_run_file

__all__ = [
    "Joined",
    "SubagentFile",
    "SubagentHandle",
    "SubagentRole",
    "agents_file",
    "audit",
    "create_run_file",
    "instructions_for_subagent",
    "join",
    "list_run_files",
    "open_run_file",
    "retry_delay",
    "subagent",
    "take_in",
]
