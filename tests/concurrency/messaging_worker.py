"""What the processes of the tests of messaging run: `python -m tests.concurrency.messaging_worker COMMAND URL …`."""

import json
import sys
from datetime import timedelta

from persist import Store


def meet(store: Store, people: str) -> None:
    """Get or create the session of each person, in a channel and in a thread of it -> their ids."""
    found = []
    for number in range(int(people)):
        for thread in (None, "T1"):
            with store.begin() as tx:
                session = tx.messaging.sessions.get_or_create(
                    platform="slack", channel_id="C1", user_id=f"U{number}", thread_id=thread
                )
            found.append(session.id)
    print(json.dumps(found), flush=True)


def replace(store: Store, times: str) -> None:
    """Want a session of this very millisecond, again and again -> how many different ones it got."""
    found = set()
    for _ in range(int(times)):
        with store.begin() as tx:
            session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C1", user_id="U1", idle=timedelta())
        found.add(session.id)
    print(json.dumps(len(found)), flush=True)


def receive(store: Store, session: str) -> None:
    """Add the messages that the platform delivers to every process -> their ids."""
    found = []
    for number in range(20):
        with store.begin() as tx:
            found.append(tx.messaging.messages.add(session, role="user", content="hi", platform_message_id=f"{number}").id)
    print(json.dumps(found), flush=True)


COMMANDS = {"meet": meet, "receive": receive, "replace": replace}

if __name__ == "__main__":
    _, command, url, argument = sys.argv
    with Store.open(url) as opened:
        COMMANDS[command](opened, argument)
