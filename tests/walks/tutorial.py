"""Follows docs/tutorial.md, and says how long that took: `python -m tests.walks.tutorial postgresql://HOST/EMPTY-DATABASE`.

So called it installs this clone into a new environment, as a reader does. The tests have an environment that stands ready.
"""

import shlex
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.markdown import ROOT, TUTORIAL
from tests.walking import Told, script, steps, told
from tests.walks.newcomer import run, told_in

SERVER = "postgresql://localhost/agents"
"""The database that the page names, in whose place another one is put."""

_READY = """
python3() { if [ "$1 $2" = "-m venv" ]; then test -d .venv; else command python3 "$@"; fi; }
pip() { test "$1" = install; }
"""
_INSTALLS = """
pip() {{ command pip --quiet --disable-pip-version-check "${{@/agent-persist/{root}}}"; }}
"""


@dataclass(frozen=True)
class Followed:
    """What the page's commands said, and how they ended."""

    told: Told
    output: str
    seconds: float


def follow(folder: Path, server: str, *, ready: bool = True) -> Followed:
    """Do what the page says. `ready`: the folder has an environment already. `server`: an empty database of Postgres."""
    walk = steps(TUTORIAL.read_text(encoding="utf-8").replace(SERVER, server))
    stand_ins = _READY if ready else _INSTALLS.format(root=shlex.quote(str(ROOT)))
    began = time.monotonic()
    done = run(script(walk, stand_ins), folder)
    seconds = time.monotonic() - began
    return Followed(told(walk, done.stdout, told_in(folder)), done.stdout + done.stderr, seconds)


def main() -> int:
    """0 if every command ended as the page says."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "folder")
        (Path(place) / "home").mkdir()
        folder.mkdir()
        followed = follow(folder, sys.argv[1], ready=False)
    for expected, found in followed.told.differences:
        print(f"expected:\n{expected}\nfound:\n{found}")
    print(f"{followed.seconds:.0f} s from an empty folder to a chat on Postgres")
    return 1 if followed.told.differences else 0


if __name__ == "__main__":
    sys.exit(main())
