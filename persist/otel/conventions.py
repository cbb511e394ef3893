"""The words of the GenAI semantic conventions, whose input counts cached tokens; what is stored counts them apart."""

from typing import Any, NamedTuple

from persist.usage.writing import MOST

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
SYSTEM = "gen_ai.system"
"""The older name of the provider."""
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.name"
AGENT_ID = "gen_ai.agent.id"
WORKFLOW = "gen_ai.workflow.name"
TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
OUTPUT_MESSAGES = "gen_ai.output.messages"
INPUT = "gen_ai.usage.input_tokens"
OUTPUT = "gen_ai.usage.output_tokens"
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE = "gen_ai.usage.cache_creation.input_tokens"
REASONING = "gen_ai.usage.reasoning.output_tokens"
COST = "persist.cost_usd"
"""The conventions have no word for money."""

CHAT, INVOKE_AGENT, INVOKE_WORKFLOW, EXECUTE_TOOL = "chat", "invoke_agent", "invoke_workflow", "execute_tool"
MODEL_CALLS = frozenset((CHAT, "generate_content", "text_completion", "embeddings"))
"""Operations that use tokens themselves. An agent's operation may repeat the tokens of calls inside it."""

_MAX = 2**63 - 1
"""What an attribute can hold."""


class Tokens(NamedTuple):
    """Tokens as they are stored: `input` excludes those of the cache. None: unknown."""

    input: int | None
    output: int | None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    """Not in `output`."""


def attributes_of(tokens: Tokens) -> dict[str, int]:
    """The attributes of usage: input with the tokens of the cache, output with those of reasoning. Sums end at 2**63 - 1."""
    found: dict[str, int] = {}
    if tokens.input is not None or tokens.cache_read is not None or tokens.cache_write is not None:
        found[INPUT] = min(_MAX, (tokens.input or 0) + (tokens.cache_read or 0) + (tokens.cache_write or 0))
    if tokens.output is not None or tokens.reasoning is not None:
        found[OUTPUT] = min(_MAX, (tokens.output or 0) + (tokens.reasoning or 0))
    apart = {CACHE_READ: tokens.cache_read, CACHE_WRITE: tokens.cache_write, REASONING: tokens.reasoning}
    return found | {name: number for name, number in apart.items() if number}


def tokens_of(attributes: Any) -> Tokens | None:
    """The tokens of a span's attributes: the cache's not in the input, and reasoning not in the output. None if it has none."""
    total, output = _count(attributes, INPUT), _count(attributes, OUTPUT)
    read, write, reasoning = _count(attributes, CACHE_READ), _count(attributes, CACHE_WRITE), _count(attributes, REASONING)
    if total is output is read is write is reasoning is None:
        return None
    return Tokens(_without(total, read, write), _without(output, reasoning), read, write, reasoning)


def _without(total: int | None, *parts: int | None) -> int | None:
    return None if total is None else max(0, total - sum(part or 0 for part in parts))


def _count(attributes: Any, name: str) -> int | None:
    """A count of tokens; None if there is none, also where it is more than is stored of one call."""
    value = attributes.get(name)
    return value if type(value) is int and 0 <= value <= MOST else None
