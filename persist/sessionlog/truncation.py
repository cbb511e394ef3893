"""The limit on a tool's result in a log. Logs are for display; the tool's own output has the whole text."""

from persist.errors import InvalidValue

TOOL_RESULT_LIMIT = 65_536
"""The limit in UTF-16 units, as JavaScript counts: a letter is one, an emoji two."""


def truncate_tool_result(text: str, limit: int = TOOL_RESULT_LIMIT) -> str:
    """The text, or its first `limit` UTF-16 units and a last line `…[truncated N chars]`, where N is the units left out.

    A character of two units is never split: if the limit falls inside it, it is left out. Raises InvalidValue for a limit below
    1.
    """
    if limit < 1:
        raise InvalidValue("limit", "at least 1.")
    if 2 * len(text) <= limit or (len(text) <= limit and text.isascii()):
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    total = len(units) // 2
    if total <= limit:
        return text
    kept_units = limit
    if _is_half(units, kept_units - 1, 0xD8) and _is_half(units, kept_units, 0xDC):
        kept_units -= 1
    head = units[: 2 * kept_units].decode("utf-16-le", "surrogatepass")
    return f"{head}\n…[truncated {total - kept_units} chars]"


def _is_half(units: bytes, at: int, first: int) -> bool:
    """Whether the unit at that index is a surrogate: a leading one (`first` 0xD8) or a trailing one (0xDC)."""
    return units[2 * at + 1] & 0xFC == first
