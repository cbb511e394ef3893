"""Telemetry of agent instances (status history, tags, links, usage, tool calls) and a workspace's task queue."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.single_owner_files.instances import open_instance, open_workspace, purge_instance
    from persist.telemetry.windows import trim

__all__ = ["open_instance", "open_workspace", "purge_instance", "trim"]

# imported on first use: instances imports Store, which imports this package
__getattr__ = lazy_names(
    __name__,
    {
        "open_instance": "persist.single_owner_files.instances",
        "open_workspace": "persist.single_owner_files.instances",
        "purge_instance": "persist.single_owner_files.instances",
        "trim": "persist.telemetry.windows",
    },
)
