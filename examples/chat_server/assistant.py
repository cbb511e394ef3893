"""The agent of the chat: its model, and two tools, one that waits for an approval and one that the browser answers."""

from typing import Any

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.models import Model
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

CHOOSE = ToolDefinition(
    name="choose",
    description="Let the person choose one of several options.",
    parameters_json_schema={
        "type": "object",
        "properties": {"question": {"type": "string"}, "options": {"type": "array", "items": {"type": "string"}}},
        "required": ["question", "options"],
    },
)
CLIENT_TOOLS = [CHOOSE.name]
"""The tools whose results come from the browser."""


def assistant(model: Model | str) -> Agent[None, Any]:
    """An agent with that model: an object of Pydantic AI, or a name such as `anthropic:claude-sonnet-4-5`."""
    agent: Agent[None, Any] = Agent(
        model, instructions="Answer briefly.", output_type=[str, DeferredToolRequests], toolsets=[ExternalToolset([CHOOSE])]
    )

    @agent.tool_plain(requires_approval=True)
    async def send_email(to: str, subject: str) -> str:
        """Send an email."""
        return f"An email about {subject} is on its way to {to}."  # call your mail server here

    return agent
