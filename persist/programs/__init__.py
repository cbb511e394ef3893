"""Programs: the state of running programs, shared by a virtual machine and its subagents, in one file or one server."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

# `single_owner_files` opens stores, a layer above the domains; its functions are exported here too
if TYPE_CHECKING:
    from persist.programs.subagents.handles import Joined as Joined
    from persist.programs.subagents.handles import SubagentHandle as SubagentHandle
    from persist.programs.subagents.handles import audit as audit
    from persist.programs.subagents.handles import join as join
    from persist.programs.subagents.handles import retry_delay as retry_delay
    from persist.programs.subagents.handles import subagent as subagent
    from persist.programs.subagents.instructions import instructions_for_subagent as instructions_for_subagent
    from persist.programs.subagents.isolation import SubagentFile as SubagentFile
    from persist.programs.subagents.isolation import SubagentRole as SubagentRole
    from persist.programs.subagents.isolation import take_in as take_in
    from persist.single_owner_files import agents_file as agents_file
    from persist.single_owner_files import create_run_file as create_run_file
    from persist.single_owner_files import list_run_files as list_run_files
    from persist.single_owner_files import open_run_file as open_run_file
lazy_names(globals())
