"""Telemetry of agent instances (status history, tags, links, usage, tool calls) and a workspace's task queue."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

# imported on first use: instances imports Store, which imports this package
if TYPE_CHECKING:
    from persist.single_owner_files import open_instance as open_instance
    from persist.single_owner_files import open_workspace as open_workspace
    from persist.single_owner_files import purge_instance as purge_instance
    from persist.telemetry.windows import trim as trim
lazy_names(globals())
