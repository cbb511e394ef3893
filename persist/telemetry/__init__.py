"""Telemetry of agent instances: status history, tags, links, usage and tool calls in windows, and a workspace's task queue."""

from typing import TYPE_CHECKING

from persist.later import offers

if TYPE_CHECKING:
    from persist.instances import open_instance, open_workspace, purge_instance
    from persist.telemetry.windows import trim

__all__ = ["open_instance", "open_workspace", "purge_instance", "trim"]

# the first three open stores, and a store is made of the domains
__getattr__ = offers(
    __name__,
    {
        "open_instance": "persist.instances",
        "open_workspace": "persist.instances",
        "purge_instance": "persist.instances",
        "trim": "persist.telemetry.windows",
    },
)
