"""`python -m tests.cli.interrupted_worker AT ARGS…`: the command, which gets SIGINT at its AT-th call or return of a function.

With 0 it gets none, and says how many there were, as the last line of its standard error. With -1 none are counted.
"""

import os
import signal
import sys
from typing import Any

from persist.command import main
from persist.interruption import leave


def run(at: int) -> None:
    """The signal comes while whatever Python is just doing, a callback of a driver or an import included."""
    seen = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, leave)  # as its first line does: what comes before is Python's own
    sys.setprofile(count if at >= 0 else None)
    try:
        main()
    finally:
        sys.setprofile(None)
        print(seen, file=sys.stderr)


if __name__ == "__main__":
    number = int(sys.argv.pop(1))
    run(number)
