"""The cap on what a tool returned: the log is for showing, and the whole output lies where the tool wrote it."""

from persist.errors import InvalidValue

TOOL_RESULT_LIMIT = 65_536
"""In UTF-16 units, which is what readers in JavaScript count: a letter is one, an emoji two."""


def truncate_tool_result(text: str, limit: int = TOOL_RESULT_LIMIT) -> str:
    """The text, or its first `limit` UTF-16 units and a last line `…[truncated N chars]`, N being the units left out.

    A character of two units is never split: where the cut would fall inside one, it is left out too.
    """
    if limit < 1:
        raise InvalidValue("limit", "at least 1.")
    if 2 * len(text) <= limit or (len(text) <= limit and text.isascii()):
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    total = len(units) // 2
    if total <= limit:
        return text
    kept = limit
    if _is_half(units, kept - 1, 0xD8) and _is_half(units, kept, 0xDC):
        kept -= 1
    head = units[: 2 * kept].decode("utf-16-le", "surrogatepass")
    return f"{head}\n…[truncated {total - kept} chars]"


def _is_half(units: bytes, at: int, first: int) -> bool:
    """Whether that unit is a half of a pair: the leading one of D8..DB, or the trailing one of DC..DF."""
    return units[2 * at + 1] & 0xFC == first
