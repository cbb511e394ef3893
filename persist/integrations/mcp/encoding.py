"""JSON-RPC messages as the text that is stored. What JSON would change is refused before anything is written."""

import json
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, JSONRPCMessage
from pydantic import TypeAdapter

from persist.integrations.error_kinds import kind_of
from persist.integrations.framework_errors import InvalidForFramework
from persist.quoting import shown

_MESSAGES: TypeAdapter[JSONRPCMessage] = TypeAdapter(JSONRPCMessage)
_PLAIN = frozenset({str, int, float, bool, type(None)})


class InvalidMessage(InvalidForFramework, MCPError):  # noqa: N818  # named like the errors it stands among
    """A message or argument that cannot be stored: an InvalidValue, and also an MCPError of the framework."""

    _before = (INVALID_PARAMS,)


def text_of(message: JSONRPCMessage) -> str:
    """The JSON text of a message, with the fields that the transport sends. Raises InvalidMessage for what would change."""
    try:
        found = message.model_dump(by_alias=True, exclude_unset=True, warnings="error")
        _check("message", found)
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    except InvalidMessage:
        raise
    except (AttributeError, ValueError, RecursionError) as error:
        kind = kind_of(error)
    raise InvalidMessage("message", f"it is no JSON-RPC message that can be stored: {kind}.")


def message_of(text: str) -> JSONRPCMessage | None:
    """The message of a stored text; None for text that another program made unreadable."""
    try:
        return _MESSAGES.validate_python(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _check(path: str, value: Any) -> None:
    kind = type(value)
    if kind in _PLAIN:
        return
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidMessage(path, f"the key {shown(key)} is not a string.")
            _check(f"{path}.{key}", item)
    elif kind is list:
        for index, item in enumerate(value):
            _check(f"{path}[{index}]", item)
    else:
        raise InvalidMessage(path, f"{kind.__name__} is not a JSON value.")
