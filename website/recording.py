"""docs/demo.svg: `make demo` as it runs, in a moving picture. `python -m website.recording` records it anew.

The program runs in an empty folder, and every line is noted with the moment at which it came. The picture shows the lines in that
order and with those pauses, stretched to its length.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "demo.svg"
SECONDS, STILL = 20, 5
"""How long the picture moves, and how many seconds of that its end stands still."""

_WIDTH, _ROW, _TOP, _LETTER = 1010, 17, 44, 7.8
_COLOURS = {"title": "#8be9fd", "good": "#50fa7b", "dead": "#ff6e6e", "half": "#f1c15b", "": "#e6e6e6"}


@dataclass(frozen=True)
class Line:
    """A line of the program's output, and after how many seconds it came."""

    at: float
    text: str


def record() -> list[Line]:
    """Run the demo, and return what it printed. Raises CalledProcessError if it does not end well."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--url", "sqlite:///state.db"]
        began, lines = time.monotonic(), [Line(0.0, "$ make demo")]
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        ) as process:
            assert process.stdout is not None
            lines += [Line(time.monotonic() - began, line.rstrip("\n")) for line in process.stdout]
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
    return lines


def drawn(lines: Sequence[Line]) -> str:
    """The picture as SVG: one text for each line, which appears when its time has come. Without motion all stand there."""
    last = lines[-1].at or 1.0
    rows, rules = [], []
    for number, line in enumerate(lines):
        share = 2 + 98 * (1 - STILL / SECONDS) * line.at / last
        y = _TOP + _ROW * number
        rows.append(f'<text class="l{number}" x="18" y="{y}" fill="{_colour(line.text)}">{escape(line.text)}</text>')
        rules.append(f"@keyframes k{number}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}")
        rules.append(f".l{number}{{animation-name:k{number}}}")
    height = _TOP + _ROW * len(lines) + 4
    moving = f"@media (prefers-reduced-motion:no-preference){{text{{animation:{SECONDS}s linear infinite}}{''.join(rules)}}}"
    font = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
    dots = "".join(f'<circle cx="{20 + 18 * place}" cy="16" r="5" fill="#6b7280"/>' for place in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
        "<title>An answer is recorded, its recorder killed, the database opened again, and the answer goes on</title>"
        f"<style>text{{white-space:pre;font:13px {font}}}{moving}</style>"
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#1e2430"/>{dots}\n' + "\n".join(rows) + "\n</svg>\n"
    )


def texts(picture: str) -> list[str]:
    """The lines that a picture shows."""
    return [unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", picture)]


def without_ids(line: str) -> str:
    """The line with what differs from run to run left open."""
    return re.sub(r"\b(ses|msg)_\w+", r"\1_…", line)


def _colour(text: str) -> str:
    kind = "title" if re.match(r"\d\. |\$ ", text) else "dead" if "SIGKILL" in text else "half" if " unfinished " in text else ""
    return _COLOURS["good" if text.endswith(": yes") else kind]


if __name__ == "__main__":
    PICTURE.write_text(drawn(record()), encoding="utf-8")
