"""Pydantic AI on persist: `PersistConversationStore` keeps conversations, `PersistStepStore` the steps of the harness's runs.

The first one needs the extra `pydantic-ai`, the second one the extra `pydantic-ai-harness`. The harness may require a release of
Pydantic AI that has no conversation stores; either name can therefore be imported without the other extra.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from persist.integrations.pydantic_ai.conversations import ConversationChanged, MissingEntry, PersistConversationStore
    from persist.integrations.pydantic_ai.messages import InvalidInput
    from persist.integrations.pydantic_ai.steps import PersistStepStore, RunTaken

__all__ = ["ConversationChanged", "InvalidInput", "MissingEntry", "PersistConversationStore", "PersistStepStore", "RunTaken"]
_CONVERSATIONS = "Pydantic AI with conversation stores: pip install 'agent-persist[pydantic-ai]'"
_STEPS = "the harness of Pydantic AI: pip install 'agent-persist[pydantic-ai-harness]'"
_ANY = "Pydantic AI: pip install 'agent-persist[pydantic-ai]' or 'agent-persist[pydantic-ai-harness]'"
_PLACES = {
    "ConversationChanged": ("conversations", _CONVERSATIONS),
    "InvalidInput": ("messages", _ANY),
    "MissingEntry": ("conversations", _CONVERSATIONS),
    "PersistConversationStore": ("conversations", _CONVERSATIONS),
    "PersistStepStore": ("steps", _STEPS),
    "RunTaken": ("steps", _STEPS),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, needed = _PLACES[name]
    try:
        found = getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pydantic_ai", "pydantic_ai_harness"):
            raise
        raise ImportError(f"{__name__}.{name} needs {needed}.") from error
    globals()[name] = found
    return found
