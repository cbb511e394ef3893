"""A process that erases a person: `python -m tests.maintenance.erasing_worker URL STEP before|within [HOME]`.

It says "done" at the end. It kills itself in the given step of the erasure, counted from 0: before its transaction, or within it
when all is written.
"""

import os
import signal
import sys
from typing import Any

from persist import Store
from persist.maintenance import erase
from persist.maintenance.erasing import Erasure
from tests.maintenance.erasing_scenes import selectors


def main(url: str, step: str, when: str, home: str | None = None) -> None:
    """In parts of few rows, so that there are many steps."""
    steps, begun = Erasure.step, iter(range(1_000_000))

    def dying(self: Any, run: Any, do: Any) -> Any:
        last = next(begun) == int(step)
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)

        def kill_within(work: Any) -> Any:
            done = do(work)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return steps(self, run, kill_within)

    Erasure.step = dying  # type: ignore[method-assign, assignment]  # it dies in the middle of it
    with Store.open(url) as store:
        erase(store, **selectors("maria"), session_logs=home)
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
