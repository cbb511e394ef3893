"""Text made safe: a reversible escape for what databases refuse, names in SQL that is written out, words of a shell command."""

import re
import shlex
import sys


def command_word(text: str) -> str:
    """The text quoted as one argument of a command line, for this system's shell."""
    return f'"{text}"' if sys.platform == "win32" else shlex.quote(text)


def quoted(name: str) -> str:
    """The name as an identifier in SQL that is written out, where no parameter can be given."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """The text as a literal in SQL, whatever the server takes a backslash for."""
    said = text.replace("'", "''")
    return " E'" + said.replace("\\", "\\\\") + "'" if "\\" in said else f"'{said}'"


def body(code: str) -> str:
    """The code as the body of a function or of DO, between dollar quotes that no name in it ends."""
    tags = ("$$", *(f"$body{number}$" for number in range(len(code))))
    tag = next(tag for tag in tags if tag not in code)
    return f"{tag} {code} {tag}"


# A NUL (refused by Postgres) and a lone surrogate half (refused by both databases) become the lead and four hex digits; the lead
# itself is doubled. Text without any of them, nearly all text, passes unchanged after one cheap check.

LEAD = "\ufdd0"

_HALF = re.compile("[\ud800-\udfff]")
_RAW_LITE = re.compile("[\ud800-\udfff\ufdd0]")
_RAW_FULL = re.compile("[\x00\ud800-\udfff\ufdd0]")
_ESCAPED = re.compile(LEAD + "(" + LEAD + "|[0-9a-f]{4})")
# In JSON text. Alternatives in order: a valid surrogate pair (kept), what must be escaped, any other JSON escape (kept; so
# that the backslash of "\\u0000" is not taken for the start of an escape).
_JSON_RAW = re.compile(
    r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\u(0000|d[89a-f][0-9a-f]{2})|(\\ufdd0|" + LEAD + r")|\\.", re.IGNORECASE
)


def has_half(text: str) -> bool:
    """Whether the text holds a surrogate half, paired or not."""
    return not text.isascii() and _HALF.search(text) is not None


def utf8_size(text: str) -> int:
    """The size of the text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def join_halves(text: str) -> str:
    """The text with each pair of surrogate halves joined into its character; a lone half stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass") if has_half(text) else text


def escape_text(text: str, *, nul: bool) -> str:
    """The storable form of any text. `nul`: escape U+0000 too, which Postgres refuses."""
    if text.isascii() and not (nul and "\x00" in text):
        return text
    pattern = _RAW_FULL if nul else _RAW_LITE
    if pattern.search(text) is None:
        return text
    return pattern.sub(_mark, join_halves(text))


def unescape_text(text: str) -> str:
    """The inverse of `escape_text`."""
    return _ESCAPED.sub(lambda found: LEAD if found[1] == LEAD else chr(int(found[1], 16)), text) if LEAD in text else text


def escape_json(text: str) -> str:
    """JSON text that JSONB accepts: the escape, applied to the text of the encoded value."""
    if LEAD not in text and "\\u" not in text:
        return text
    return _JSON_RAW.sub(_mark_json, text)


def unescape_json(text: str) -> str:
    """The inverse of `escape_json`; the result has `\\u` escapes for NUL and lone halves."""
    return _ESCAPED.sub(lambda found: LEAD if found[1] == LEAD else "\\u" + found[1], text) if LEAD in text else text


def _mark(found: re.Match[str]) -> str:
    char = found[0]
    return LEAD + LEAD if char == LEAD else f"{LEAD}{ord(char):04x}"


def _mark_json(found: re.Match[str]) -> str:
    if found[2]:  # the lead, also when written as \\ufdd0: the database would decode that
        return LEAD + LEAD
    return LEAD + found[1].lower() if found[1] else found[0]
