"""Telemetry of agent instances (status history, tags, links, usage, tool calls) and a workspace's task queue."""

from persist.lazy_imports import lazy_names

# imported on first use: instances imports Store, which imports this package
with lazy_names(globals()):
    from persist.single_owner_files.instances import open_instance, open_workspace, purge_instance
    from persist.telemetry.windows import trim

__all__ = ["open_instance", "open_workspace", "purge_instance", "trim"]
