"""Claude Agent SDK on persist: `PersistSessionStore` mirrors and resumes sessions. Needs the extra `claude-agent-sdk`."""

try:
    from persist.integrations.claude_agent_sdk.session_store import InvalidEntry, PersistSessionStore
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "claude_agent_sdk":
        raise
    raise ImportError(
        "persist.integrations.claude_agent_sdk needs the Claude Agent SDK: pip install 'agent-persist[claude-agent-sdk]'."
    ) from error

__all__ = ["InvalidEntry", "PersistSessionStore"]
