"""What the processes of the tests of conversations run: `python -m tests.concurrency.conversation_worker COMMAND URL …`.

Each says that it is ready, and begins when it is sent a line.
"""

import json
import sys
import time

from persist import Store


def end(store: Store, status: str, count: str) -> None:
    """End so many running sessions -> for which of them this process did it."""
    won = []
    for number in range(int(count)):
        with store.begin() as tx:
            if tx.conversations.sessions.set_status(f"s{number}", status, expected=["running"], actor=status):
                won.append(number)
    print(json.dumps(won), flush=True)


def send(store: Store, sender: str, count: str) -> None:
    """Send so many messages to the reader, every third to all, and be slow to commit -> their ids."""
    sent = []
    for number in range(int(count)):
        with store.begin() as tx:
            recipient = None if number % 3 == 0 else "reader"
            message = tx.conversations.exchange.send(sender=sender, recipient=recipient, content=number)
            time.sleep(0.001 * (number % 4))
        sent.append(message.id)
    print(json.dumps(sent), flush=True)


COMMANDS = {"end": end, "send": send}

if __name__ == "__main__":
    _, command, url, *arguments = sys.argv
    with Store.open(url) as opened:
        print("ready", flush=True)
        sys.stdin.readline()
        COMMANDS[command](opened, *arguments)
