"""A page that a reader follows from top to bottom, as one script: its files are written, its lines run, its outputs compared.

- A fence after a line such as "`chat.py`:" is a file of that name.
- A fence of kind sh runs line by line. A fence of kind python runs at once; neighbours are one session of the interpreter.
- A fence of kind text right after them is what they print. An ellipsis in it stands for any text.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

_FENCE = re.compile(r"(?:^`([\w./-]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "\x1e"
_TOLD = f'tell() {{ printf \'%s\\t%s\\n\' "$1" "$2" >> "$TOLD"; }}\nmark() {{ printf \'{_MARK}%s\\n\' "$1"; }}\n'


@dataclass
class Step:
    """A file to write, lines of a shell, or a session of Python."""

    kind: Literal["file", "sh", "python"]
    text: str
    name: str = ""
    printed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Told:
    """How each command ended, and the outputs that differ from the page, as pairs of expected and found."""

    statuses: list[tuple[int, str]]
    differences: list[tuple[str, str]]


def steps(page: str) -> list[Step]:
    """What the page has its reader do, in order. Raises AssertionError for a fence that a reader could not follow."""
    found: list[Step] = []
    for name, kind, text in _FENCE.findall(page):
        if name:
            found.append(Step("file", text, name))
        elif kind == "text":
            assert [step.kind for step in found[-1:]] in (["sh"], ["python"]), f"nothing prints {text[:60]!r}"
            found[-1].printed.append(text)
        elif kind == "python" and found and found[-1].kind == "python":
            found[-1].text += text
        else:
            assert kind in ("sh", "python"), f"nobody could tell how to run a fence of kind {kind!r}"
            found.append(Step("sh" if kind == "sh" else "python", text))
    return found


def script(walk: list[Step], stand_ins: str = "") -> str:
    """The steps for bash. It notes the status of each command in the file $TOLD, and marks in its output where a step begins."""
    lines = [_TOLD, stand_ins]
    for number, step in enumerate(walk):
        lines.append(f"mark {number}\n")
        if step.kind == "file":
            lines.append(f"cat > {step.name} <<'END-OF-FILE'\n{step.text}END-OF-FILE\n")
        elif step.kind == "python":
            lines.append(f"python - <<'PYTHON'\n{step.text}PYTHON\ntell $? python\n")
        else:
            lines += [f"{line}\ntell $? {_quoted(line)}\n" for line in step.text.splitlines() if line.strip()]
    return "".join(lines)


def told(walk: list[Step], output: str, statuses: Path) -> Told:
    """What became of the script that printed this output."""
    pairs = [line.split("\t", 1) for line in statuses.read_text(encoding="utf-8").splitlines()]
    _, *printed = re.split(f"{_MARK}(\\d+)\n", output)
    by_step = dict(zip(map(int, printed[::2]), printed[1::2], strict=True))
    expected = [("".join(step.printed), by_step.get(number, "")) for number, step in enumerate(walk) if step.printed]
    return Told([(int(status), line) for status, line in pairs], [pair for pair in expected if not agrees(*pair)])


def agrees(expected: str, found: str) -> bool:
    """Whether a text is as expected but for blanks, of which the page may have fewer, and for each ellipsis."""
    pattern = ".*?".join(re.escape(" ".join(piece.split())) for piece in expected.split("…"))
    pattern = re.sub(r"(?<=\.\*\?)(?:\\ )?|(?:\\ )?(?=\.\*\?)", "", pattern)
    return re.fullmatch(pattern, " ".join(found.split())) is not None


def _quoted(line: str) -> str:
    return "'" + line.partition(" #")[0].strip().replace("'", "'\\''") + "'"
