"""Two weeks of ordinary days: runs that came and went, and letters in the team's chat."""

from collections.abc import Iterable

from examples.filled.times import Ids, Scene, Times
from persist import Store

DAYS = 14
_WORK = [
    ("review", "github", "lighthouse-large-2", 14_000, 0.034),
    ("answer-mail", "mail", "lighthouse-small-2", 2_200, 0.002),
    ("research", "question", "lighthouse-large-2", 31_000, 0.081),
    ("index-code", "push", "pebble-code-1", 8_000, 0.011),
]
_PEOPLE = [("maria", "build"), ("otto", "support"), ("ines", "researcher"), ("jonas", "reviewer")]
_TALKS = [
    (
        "Which tests are slow?",
        "Four of them take **half** of the time:\n\n- `test_import`\n- `test_totals`\n- two of `test_mail`",
    ),
    (
        "Write an answer to letter 8702",
        "> Thank you for your patience. The parcel left our house this morning.\n\nShall I send it?",
    ),
    ("Why is the search slow?", "It reads every product. An index on `name` makes it forty times as fast."),
    ("What is new in the framework?", "Mostly repairs. One change concerns us: forms are checked on the server by default."),
    (
        "Sum up the meeting of today",
        "1. The release is on Tuesday.\n2. ines looks at the prices.\n3. Nobody deploys on a Friday.",
    ),
    ("Rename `Basket` to `Cart`", "Done in 14 files; the tests pass. The table keeps its name."),
    ("How many orders were late last week?", "31 of 2,240, most of them from one supplier."),
]
_ERRORS = ["the model answered 529: overloaded", "timed out after 600 seconds", "the tests do not pass", "out of memory"]


def scenes(store: Store, times: Times, ids: Ids) -> Iterable[Scene]:
    """A scene for the runs of all days, and one for messages of people."""
    yield _days(store, times)
    yield _threads(store, times, ids)


def _days(store: Store, times: Times) -> Scene:
    for day in range(DAYS - 1, 0, -1):
        yield times.ago(days=day, hours=day % 5)
        with store.begin() as tx:
            for number, (workflow, kind, model, tokens, cost) in enumerate(_WORK):
                trigger = f"{kind}/{1000 + 10 * (DAYS - day) + number}"
                about = {"trigger_id": trigger, "current_phase": "work", "context": {"day": day, "from": kind}}
                run = tx.workflows.runs.create(workflow, **about).id
                phase = tx.workflows.phases.begin(run, "work", trigger_type=kind)
                times.later(20 + 7 * number + day)
                if (day + number) % 6:
                    used = {
                        "input_tokens": tokens + 310 * day,
                        "output_tokens": tokens // 20,
                        "cost_usd": cost * (1 + day % 4 / 5),
                    }
                    spent = {"duration_ms": 20_000 + 900 * day, "turns": 3 + number, "model": model}
                    tx.workflows.phases.finish(phase, output=f"Done: {trigger}.", **used, **spent)
                    tx.workflows.runs.finish(run, "succeeded")
                else:
                    error = _ERRORS[(day + number) // 6 % len(_ERRORS)]
                    tx.workflows.phases.fail(phase, error)
                    tx.workflows.runs.finish(run, "failed", error=error)
            for number, (owner, agent) in enumerate(_PEOPLE):
                question, answer = _TALKS[(3 * day + number) % len(_TALKS)]
                about = {"agent": agent, "model": {"provider_id": "lighthouse", "model_id": "lighthouse-small-2"}, "owner": owner}
                chat = tx.chat.sessions.create(**about, metadata={"title": question}).id
                tx.chat.messages.append(chat, role="user", parts=[{"type": "text", "text": question}])
                times.later(3)
                tx.chat.messages.append(chat, role="assistant", parts=[{"type": "text", "text": answer}])


def _threads(store: Store, times: Times, ids: Ids) -> Scene:
    """Threads of a chat platform: one that is over, one in which an agent answers, one without an answer."""
    sessions, messages = store.messaging.sessions, store.messaging.messages
    yield times.ago(days=5)
    with store.begin() as tx:
        over = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C-general", user_id="U-otto")
        tx.messaging.messages.add(over.id, role="user", content="Is staging down?", platform_message_id="1700.1")
        tx.messaging.sessions.touch(over.id)
        times.later(20)
        tx.messaging.messages.add(over.id, role="assistant", content="It was restarted at 14:02 and answers again.")
        tx.messaging.sessions.touch(over.id)
        tx.messaging.sessions.deactivate(over.id)
    yield times.ago(minutes=25)
    about = {"platform": "slack", "channel_id": "C-releases", "thread_id": "1712.5", "user_id": "U-ines"}
    thread = sessions.get_or_create(**about).id
    ids["thread"] = thread
    store.messaging.sessions.set_agent_session(thread, "chat-checkout")
    said = [
        ("user", "What is in 2.14?"),
        ("assistant", "31 commits. The largest: totals are rounded once, at the end."),
        ("user", "Does it need a migration?"),
        ("assistant", "One, which adds a column. It waits for your approval."),
    ]
    for number, (role, content) in enumerate(said):
        with store.begin() as tx:
            if role == "assistant":
                turn = tx.workflows.executions.start(trigger_type="slack", trigger_id=thread, skill="chat")
                times.later(9)
                used = {"input_tokens": 1_100, "output_tokens": 60, "cost_usd": 0.0012}
                tx.workflows.executions.finish(turn.id, success=True, model="lighthouse-small-2", **used)
            told = {"platform_message_id": f"1712.{number}"} if role == "user" else {}
            tx.messaging.messages.add(thread, role=role, content=content, **told)
            tx.messaging.sessions.touch(thread)
            times.later(40)
    yield times.ago(minutes=4)
    asking = sessions.get_or_create(platform="mattermost", channel_id="support", user_id="U-maria").id
    messages.add(asking, role="user", content="Who looks at letter 8841? The customer writes again.", platform_message_id="m-1")
    sessions.touch(asking)
    ids["unanswered_thread"] = asking
