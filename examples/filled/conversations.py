"""Conversations of several agents: branches over shared messages, forks, letters between them, and how they ended."""

from collections.abc import Iterable

from examples.filled.times import Ids, Scene, Times
from persist import Store

_SYSTEM = "lionagi.protocols.messages.system.System"
_ASKED = "lionagi.protocols.messages.instruction.Instruction"
_ANSWERED = "lionagi.protocols.messages.assistant_response.AssistantResponse"
_DEBATE = [
    ("user", "Shall prices be stored with or without tax?"),
    ("assistant", "Without: the rate depends on the country, and may change."),
    ("user", "What would that cost in the list of products?"),
    ("assistant", "One multiplication for each price. Nobody will notice."),
    ("user", "And for invoices of last year?"),
    ("assistant", "They keep the rate that held then, in a column of their own."),
    ("user", "Write that down as a decision."),
    ("assistant", "Decision 31: prices are stored without tax; invoices keep their rate."),
]


def scenes(store: Store, times: Times, ids: Ids) -> Iterable[Scene]:
    """A conversation with branches, and some that ended otherwise."""
    yield _debate(store, times, ids)
    yield _others(store, times, ids)


def _debate(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(days=3, hours=6)
    with store.begin() as tx:
        conversations = tx.conversations
        session = conversations.sessions.create(
            id="conv-prices",
            name="Prices with or without tax",
            user="maria",
            node_metadata={"room": "architecture", "decision": 31},
            status="running",
            started_at=times.later(0),
            agent_name="planner",
            playbook_name="decide",
            invocation_kind="flow",
            show_topic="prices",
            artifacts_path="decisions/31",
        ).id
        main = conversations.branches.create(session, id="conv-prices-main", name="main", user="maria").id
        system = {"id": "conv-m-system", "role": "system", "content": {"system": "Decide by arguments, and write them down."}}
        conversations.messages.record(
            main, {**system, "created_at": times.later(1).timestamp(), "node_metadata": {"lion_class": _SYSTEM}}
        )
        conversations.branches.set_system_message(main, "conv-m-system")
        for number, (role, text) in enumerate(_DEBATE):
            mine, path = ("instruction", _ASKED) if role == "user" else ("assistant_response", _ANSWERED)
            conversations.messages.record(
                main,
                {
                    "id": f"conv-m{number}",
                    "created_at": times.later(30).timestamp(),
                    "role": role,
                    "content": {mine: text},
                    "sender": "maria" if role == "user" else "planner",
                    "recipient": "planner" if role == "user" else "maria",
                    "node_metadata": {"lion_class": path},
                    "embedding": [0.1 * number, 1.0 - 0.1 * number, 0.25],
                },
            )
        ids |= {"conversation": session, "branch": main}
    yield times.ago(days=3, hours=5)
    with store.begin() as tx:
        branches, messages, exchange = tx.conversations.branches, tx.conversations.messages, tx.conversations.exchange
        doubt = branches.fork(main, at=5, name="doubt", new_id="conv-prices-doubt").id
        told = {"created_at": times.later(20).timestamp(), "role": "assistant", "node_metadata": {"lion_class": _ANSWERED}}
        text = {"assistant_response": "With tax it would be one column less, but wrong in January."}
        messages.record(doubt, {**told, "id": "conv-doubt", "content": text})
        costs = branches.fork(main, name="costs", new_id="conv-prices-costs").id
        again = branches.fork(doubt, name="doubt, again", new_id="conv-prices-again").id
        branches.update_metadata(costs, {"model": "lighthouse-small-2", "effort": "low"})
        branches.finalize(doubt, "completed")
        times.later(15)
        asked = exchange.send(sender=main, recipient=costs, content="What does a column more cost us?", channel="work")
        times.later(30)
        exchange.send(sender=costs, recipient=main, content="Eight bytes for each invoice: a few megabytes.", channel="work")
        exchange.send(sender=main, recipient=again, content={"note": "Please read decision 31."}, channel="work")
        exchange.send(sender=main, recipient=None, content={"to": "all", "text": "We decide at noon."}, session_id=session)
        exchange.mark_read(costs, asked.id)
        tx.conversations.progressions.create("conv-minutes", ids=["conv-m0", "conv-m7"], name="minutes")
        ids |= {"branches": [main, doubt, costs, again], "forked_branch": doubt}
    yield times.ago(days=3, hours=4)
    with store.begin() as tx:
        sessions = tx.conversations.sessions
        sessions.set_status(session, "failed", reason="the planner ran out of time", actor="watchdog", source="system")
        times.later(120)
        sessions.set_status(session, "running", reason="begun again", actor="maria", override="the provider was down")
        times.later(300)
        sessions.set_status(session, "completed", reason="decided", reason_code="decided", actor="planner", source="agent")


def _others(store: Store, times: Times, ids: Ids) -> Scene:
    """One that runs, one that failed, one that was imported, and one of each kind of end."""
    yield times.ago(days=1)
    with store.begin() as tx:
        sessions, branches = tx.conversations.sessions, tx.conversations.branches
        for number, status in enumerate(("failed", "timed_out", "cancelled", "completed_empty")):
            about = {
                "name": f"Nightly talk {number + 1}",
                "agent_name": "researcher",
                "invocation_kind": "fanout",
                "user": "ines",
            }
            sessions.create(id=f"conv-night-{number}", **about, status="running", started_at=times.later(5))
            branches.create(f"conv-night-{number}", name="main")
            times.later(40)
            sessions.set_status(f"conv-night-{number}", status, reason="the night was over", source="executor")
        sessions.create(id="conv-imported", name="From a folder", source_kind="imported_fs", status="completed", user="otto")
        ids["failed_conversation"] = "conv-night-0"
    yield times.ago(minutes=12)
    with store.begin() as tx:
        about = {"name": "Names for the new service", "user": "jonas", "agent_name": "planner", "invocation_kind": "agent"}
        tx.conversations.sessions.create(id="conv-names", **about, status="running", started_at=times.later(0))
        tx.conversations.branches.create("conv-names", id="conv-names-main", name="main", status="running")
        said = {
            "id": "conv-names-1",
            "created_at": times.later(4).timestamp(),
            "role": "user",
            "content": {"instruction": "Three names."},
        }
        tx.conversations.messages.record("conv-names-main", {**said, "node_metadata": {"lion_class": _ASKED}})
        ids["running_conversation"] = "conv-names"
