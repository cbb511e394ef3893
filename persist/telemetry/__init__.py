"""Telemetry of agent instances: status history, tags, links, usage and tool calls in windows, and a workspace's task queue."""

from typing import TYPE_CHECKING, Any

from persist.telemetry.windows import trim

if TYPE_CHECKING:
    from persist.instances import open_instance, open_workspace, purge_instance

__all__ = ["open_instance", "open_workspace", "purge_instance", "trim"]


def __getattr__(name: str) -> Any:
    # they open stores, and a store is made of the domains: it has to be imported first
    if name in ("open_instance", "open_workspace", "purge_instance"):
        from persist import instances

        return getattr(instances, name)
    raise AttributeError(f"module 'persist.telemetry' has no attribute {name!r}")
