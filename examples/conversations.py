"""Conversations: forks that copy nothing, messages between sessions, search by embedding, pruning.

    python examples/conversations.py [--url sqlite:///FILE or postgresql://…]

Without --url it makes a new SQLite file; Postgres needs `persist upgrade` first. It prunes, so it refuses a database that holds
sessions of anybody else.
"""

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

try:
    import persist
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install .") from None

AGENTS = ("researcher", "writer", "old")
TOPICS = (("rain", "wind", "sun"), ("price", "cost", "budget"), ("bug", "test", "code"))


def embed(text: str) -> list[float]:
    """How much a text is about weather, money and programs; a model would know better, and in more dimensions."""
    words = text.lower().replace("?", "").replace(".", "").split()
    return [float(sum(word in topic for word in words)) for topic in TOPICS]


def message(role: str, text: str) -> dict[str, object]:
    return {"id": str(uuid4()), "created_at": time.time(), "role": role, "content": {"text": text}, "embedding": embed(text)}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--url")
    url = options.parse_args().url or f"sqlite:///{(Path(tempfile.mkdtemp(prefix='persist-')) / 'state.db').as_posix()}"
    with persist.Store.open(url) as store:
        with store.read() as tx:
            if any(session.agent_name not in AGENTS for session in tx.conversations.sessions.list(limit=1000).items):
                print("There are other sessions here, which pruning might delete.", file=sys.stderr)
                return 1

        print("1. A conversation, and forks of forks of it")
        with store.begin() as tx:
            talk = tx.conversations
            research = talk.sessions.create(agent_name="researcher", status="running", started_at=datetime.now(UTC))
            main = talk.branches.create(research.id, name="main", node_metadata={"model": "small"})
            for role, text in (
                ("system", "You plan a picnic."),
                ("user", "Will there be rain or sun?"),
                ("assistant", "Sun, and no wind."),
            ):
                talk.messages.record(main.id, message(role, text))
            branches = [main]
            for at, name, text in (
                (2, "doubt", "Rain, I fear."),
                (3, "indoors", "What does a hall cost?"),
                (None, "budget", "The price is over budget."),
            ):
                branches.append(talk.branches.fork(branches[-1].id, at=at, name=name))
                talk.messages.record(branches[-1].id, message("assistant", text))
        with store.read() as tx:
            for branch in branches:
                said = [one.content["text"] for one in tx.conversations.branches.history(branch.id)]
                print(f"   {branch.name:8} inherits {branch.forked_at_ord or 0}: {' / '.join(said)}")
            print(f"   {len(tx.conversations.progressions.get(research.progression_id))} messages are stored")

        print("2. Two sessions send each other messages")
        with store.begin() as tx:
            writer = tx.conversations.sessions.create(agent_name="writer", status="running", started_at=datetime.now(UTC))
            for text in ("Write an invitation.", "Say that it may rain."):
                tx.conversations.exchange.send(sender=research.id, recipient=writer.id, content=text, session_id=writer.id)
        with store.begin() as tx:
            inbox = tx.conversations.exchange.inbox(writer.id).items
            tx.conversations.exchange.mark_read(writer.id, inbox[-1].id)
            tx.conversations.exchange.send(sender=writer.id, recipient=research.id, content="Done.")
            unread = [tx.conversations.exchange.unread_count(session.id) for session in (writer, research)]
        print(f"   the writer read {[one.content for one in inbox]}; unread now: {unread[0]} there, {unread[1]} here")

        print("3. What was said about money?")
        with store.read() as tx:
            for found, distance in tx.conversations.vectors.search(embed("price and cost"), k=2, branch_id=branches[-1].id):
                print(f"   {distance:.2f} {found.content['text']}")

        print("4. Old sessions go, and what nothing else shows")
        with store.begin() as tx:
            old = tx.conversations.sessions.create(agent_name="old")
            branch = tx.conversations.branches.create(old.id)
            notes = [tx.conversations.messages.record(branch.id, message("user", text)) for text in ("A secret.", "A test.")]
            tx.conversations.progressions.append(research.progression_id, notes[1].id)  # shared, so it stays
            tx.conversations.sessions.update(old.id, updated_at=datetime.now(UTC) - timedelta(days=90))
            report = tx.conversations.sessions.prune(keep_days=30, keep_n=2)
        print(f"   {report.sessions} session, {report.branches} branch and {report.messages} of its 2 messages are gone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
