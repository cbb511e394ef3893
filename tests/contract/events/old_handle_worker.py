"""A process that opened its store before the log was switched on: `python -m tests.contract.events.old_handle_worker URL WAY`."""

import sys

from persist import Store
from tests.contract.chat.scenes import MODEL, text, turn


def main(url: str, way: str) -> None:
    with Store.open(url) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="other", model=MODEL).id
        with store.record(session) as early:
            early.feed({"type": "start"})
            early.feed({"type": "text-start", "id": "t"})
            early.feed({"type": "text-delta", "id": "t", "delta": "before "})
            print("ready", store.logs_events, flush=True)
            sys.stdin.readline()
            if way == "recorder":
                early.feed({"type": "text-delta", "id": "t", "delta": "after"})
        if way == "new recorder":
            with store.record(session) as late:
                late.feed_many(turn(*text("late")))
        if way == "transact":
            store.transact(lambda tx: tx.chat.sessions.archive(session))
        print(session, store.logs_events, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
