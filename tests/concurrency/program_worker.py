"""What the processes of the tests of programs run: `python -m tests.concurrency.program_worker COMMAND URL RUN`.

Each says on stdout what it did, one JSON value a line, and waits on stdin for a line where it says so.
"""

import json
import sys

from persist import Store
from persist.errors import RunHeld


def say(value: object) -> None:
    print(json.dumps(value), flush=True)


def begin(store: Store, run: str) -> None:
    """Create the run, and live until somebody ends this process."""
    store.programs.runs.create(id=run)
    say("begun")
    sys.stdin.readline()


def resume(store: Store, run: str) -> None:
    """At each word, try to resume the run -> the pid of the process that has it, and whether that is this one."""
    say("ready")
    for _ in sys.stdin:
        try:
            held_by = store.programs.runs.resume(run).held_by
            assert held_by is not None
            say([int(held_by.rsplit("/", 3)[1]), True])
        except RunHeld as error:
            say([error.pid, False])


if __name__ == "__main__":
    _, command, url, argument = sys.argv
    with Store.open(url) as opened:
        {"begin": begin, "resume": resume}[command](opened, argument)
