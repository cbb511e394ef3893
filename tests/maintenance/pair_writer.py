"""What another process does while a backup is made: `python -m tests.maintenance.pair_writer URL`, until its input ends.

Every transaction appends one message to each of two sessions, so that a copy that holds half of one shows it. On stdout, at the
end: how many transactions it made, how many failed, and the seconds each took.
"""

import json
import sys
import threading
import time

from persist import Store
from persist.errors import PersistError

SESSIONS = ("left", "right")
PARTS = [{"type": "text", "text": "x" * 500}]


def write(store: Store) -> dict[str, object]:
    """Until the input ends; says so when the first transaction is there."""
    stop = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    done, errors, seconds = 0, 0, []
    while not stop.is_set():
        began = time.perf_counter()
        try:
            with store.begin() as tx:
                for session in SESSIONS:
                    tx.chat.messages.append(session, role="user", parts=PARTS)
            done += 1
        except PersistError:
            errors += 1
        seconds.append(time.perf_counter() - began)
        if done == 1:
            print("writing", flush=True)
    return {"done": done, "errors": errors, "seconds": seconds}


if __name__ == "__main__":
    with Store.open(sys.argv[1]) as opened:
        print(json.dumps(write(opened)), flush=True)
