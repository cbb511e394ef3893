"""Session logs: what a writer wrote, with damage done to the bytes, is read as lines that are whole, or refused with a type."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from persist.errors import PersistError
from persist.sessionlog import SessionLogWriter, iter_session_log, list_session_logs, read_session_log, tail_session_log

_SLUG = "-work"


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with a few cuts, flips, insertions and repetitions."""

    def apply(edits: Sequence[tuple[str, int, bytes, int]]) -> bytes:
        found = whole
        for kind, at, more, length in edits:
            at %= len(found) + 1
            match kind:
                case "cut":
                    found = found[:at]
                case "drop":
                    found = found[:at] + found[at + length :]
                case "insert":
                    found = found[:at] + more + found[at:]
                case "repeat":
                    found = found[:at] + found[at : at + length] + found[at:]
                case _:
                    found = found[:at] + bytes(byte ^ 1 << length % 8 for byte in found[at : at + 1]) + found[at + 1 :]
        return found

    odd = st.sampled_from(
        [b"\n", b"\x00", b"\xff", b"\xed\xa0\x80", b'"', b"[" * 3000, b"{}\n", b"null\n", b"1e999", b"\r\n", b"9" * 5000]
    )
    edit = st.tuples(
        st.sampled_from(["cut", "drop", "insert", "repeat", "flip"]),
        st.integers(0, 2 * len(whole)),
        odd | st.binary(max_size=8),
        st.integers(1, 200),
    )
    return st.lists(edit, min_size=1, max_size=4).map(apply)


def write_log(home: Path, texts: Sequence[Any]) -> Path:
    """A log of these texts, by the writer."""
    with SessionLogWriter(home, _SLUG) as writer:
        writer.feed({"type": "agent_start", "sessionId": "s1"})
        for number, text in enumerate(texts):
            call = {"type": "toolCall", "id": f"c{number}", "name": "bash", "arguments": {"a": text}}
            message = {"role": "assistant", "content": [{"type": "text", "text": text}, call]}
            writer.feed({"type": "message_end", "sessionId": "s1", "timestamp": 1_781_521_200_000 + number, "message": message})
        assert writer.path is not None
        return writer.path


def read_damaged(path: Path, content: bytes) -> list[str]:
    """Write the bytes in place of the log and read it every way -> what is wrong."""
    path.write_bytes(content)
    wrong = []
    for name, read in (
        ("iter", lambda: list(iter_session_log(path))),
        ("read", lambda: read_session_log(path)),
        ("tail", lambda: [one for batch in tail_session_log(path, poll=0.001, stop=lambda: True) for one in batch]),
        ("list", lambda: list_session_logs(path.parents[2])),
    ):
        try:
            read()
        except PersistError:
            continue
        except Exception as error:
            wrong.append(f"{name} of a damaged log met a bare {type(error).__name__}: {str(error)[:200]} ({content!r:.300})")
    return wrong
