"""OpenAI Agents on persist: `PersistSession` implements the SDK's Session protocol. Needs the extra `openai-agents`."""

try:
    from persist.integrations.openai_agents.session import InvalidItem, PersistSession
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "agents":
        raise
    raise ImportError(
        "persist.integrations.openai_agents needs the OpenAI Agents SDK: pip install 'agent-persist[openai-agents]'."
    ) from error

__all__ = ["InvalidItem", "PersistSession"]
