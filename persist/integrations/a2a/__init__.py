"""A2A on persist: `PersistTaskStore` and `PersistPushNotificationConfigStore` for webhooks. Needs the extra `a2a`."""

try:
    from persist.integrations.a2a.task_store import InvalidTask, PersistPushNotificationConfigStore, PersistTaskStore, TaskEnded
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("a2a", "google"):
        raise
    raise ImportError("persist.integrations.a2a needs the A2A SDK: pip install 'agent-persist[a2a]'.") from error

__all__ = ["InvalidTask", "PersistPushNotificationConfigStore", "PersistTaskStore", "TaskEnded"]
