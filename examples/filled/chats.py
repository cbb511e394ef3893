"""Chats of people with agents: all kinds of parts, all states of tools, approvals, compaction, queues, forks, broken answers."""

from collections.abc import Iterable

from examples.filled.chunks import called, told
from examples.filled.pictures import data_url, png
from examples.filled.times import Ids, Scene, Times
from persist import Store

MODEL = {"provider_id": "lighthouse", "model_id": "lighthouse-large-2"}
SMALL = {"provider_id": "lighthouse", "model_id": "lighthouse-small-2"}
LIVE = ("chat-live-review", "chat-live-research")
"""The chats in which somebody talks while the page is looked at."""

ANALYSIS = """## What goes wrong

Totals are rounded **once per line**, and the tax is computed from the rounded sums:

| order | expected | got |
|------:|---------:|----:|
| 5118  | 19.99    | 20.00 |
| 5120  | 7.45     | 7.44 |

The fix is to keep the exact value until the end:

```python
def total(lines: list[Line]) -> Decimal:
    exact = sum((line.price * line.count for line in lines), Decimal())
    return exact.quantize(Decimal("0.01"), ROUND_HALF_EVEN)
```

1. `checkout/totals.py`: use `total` everywhere
2. `tests/test_totals.py`: the two orders above

> A migration is *not* needed: sums are not stored.

See [the issue](https://github.com/example/shop-api/issues/409) and run `make test` before you push."""


def scenes(store: Store, times: Times, ids: Ids) -> Iterable[Scene]:
    """Every chat, each a scene."""
    yield _everything(store, times, ids)
    yield _tool_states(store, times, ids)
    yield _asks_for_leave(store, times, ids)
    yield _long_and_compacted(store, times, ids)
    yield _forks(store, times, ids)
    yield _ended_badly(store, times, ids)
    yield _for_those_who_talk(store, times, ids)


def _text(text):
    return [{"type": "text", "text": text}]


def _everything(store: Store, times: Times, ids: Ids) -> Scene:
    """An answer with reasoning, tools, sources, files, data, Markdown and code."""
    yield times.ago(days=1, hours=5)
    picture = data_url(png(64, 40))
    with store.begin() as tx:
        chat = tx.chat.sessions.create(
            agent="build",
            model=MODEL,
            workspace_root="/home/maria/shop-api",
            metadata={"title": "Totals are a cent off", "team": "checkout", "pinned": True},
            permissions=[{"permission": "bash", "pattern": "git *", "action": "allow", "source": "session"}],
            id="chat-checkout",
            owner="maria",
        ).id
        tx.chat.sessions.add_permission(chat, {"permission": "bash", "pattern": "rm *", "action": "deny"})
        asked = _text("Some totals are a cent off, as in the picture. Why, and what is the smallest fix?")
        shown = [{"type": "file", "mediaType": "image/png", "filename": "totals.png", "url": picture}]
        tx.chat.messages.append(chat, role="user", parts=[*asked, *shown])
    ids["chat"] = chat
    times.later(2)
    prompt = "You are the build agent of a small team. Read before you write, and say what you did not check."
    with store.record(chat, model=MODEL, agent="build", system_prompt=prompt) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "answer-checkout"}, {"type": "start-step"}])
        thought = "The sums are rounded too early, I think. First I look where rounding happens, then at the two orders."
        recorder.feed_many(told("reasoning", "r", thought, pieces=3))
        found = {"matches": ["checkout/totals.py:31", "checkout/rounding.py:8"], "seconds": 0.4}
        recorder.feed_many(called("call-grep", "grep", {"pattern": "quantize", "path": "checkout/"}, found))
        times.later(3)
        text = "def total(lines):\n    return sum(round(line.price * line.count, 2) for line in lines)\n"
        recorder.feed_many(called("call-read", "read", {"path": "checkout/totals.py"}, {"text": text, "lines": 2}))
        recorder.feed({"type": "finish-step"})
        recorder.step_usage(
            0, input_tokens=6_400, output_tokens=310, reasoning_tokens=120, cache_read_tokens=2_000, cost_usd=0.021
        )
        times.later(4)
        recorder.feed({"type": "start-step"})
        failed = "1 failed, 811 passed: test_totals.py::test_order_5120"
        recorder.feed_many(called("call-test", "bash", {"command": "make test"}, error=failed))
        recorder.feed_many(
            [
                {
                    "type": "source-url",
                    "sourceId": "s1",
                    "url": "https://docs.python.org/3/library/decimal.html",
                    "title": "decimal",
                },
                {
                    "type": "source-document",
                    "sourceId": "s2",
                    "mediaType": "text/markdown",
                    "title": "Rules",
                    "filename": "rounding.md",
                },
                {"type": "file", "mediaType": "image/png", "url": data_url(png(96, 32))},
                {"type": "data-plan", "id": "plan", "data": {"steps": ["read", "fix", "test"], "done": 1}},
            ]
        )
        recorder.feed_many(told("text", "t", ANALYSIS, pieces=6))
        recorder.feed({"type": "finish-step"})
        recorder.step_usage(1, input_tokens=9_100, output_tokens=720, reasoning_tokens=0, cache_read_tokens=6_200, cost_usd=0.024)
        recorder.feed({"type": "finish", "finishReason": "stop"})
    yield times.ago(days=1, hours=4, minutes=50)
    large = png(160, 160, level=0)
    with store.begin() as tx:
        again = _text("Thanks! This is the whole page, for the issue.")
        shown = [{"type": "file", "mediaType": "image/png", "filename": "page.png", "url": data_url(large)}]
        tx.chat.messages.append(chat, role="user", parts=[*again, *shown])
        ids["blob"] = tx.blobs.put(png(120, 60), "image/png").sha256
    times.later(3)
    with store.record(chat, model=SMALL, agent="build") as recorder:
        recorder.feed_many(
            [{"type": "start"}, {"type": "start-step"}, *told("text", "t", "I have added it to issue 409.", pieces=2)]
        )
        recorder.feed({"type": "finish-step"})
        recorder.step_usage(0, input_tokens=1_200, output_tokens=14, cost_usd=0.0011)
        recorder.feed({"type": "finish"})


def _tool_states(store: Store, times: Times, ids: Ids) -> Scene:
    """A call in every state that a call can be in."""
    yield times.ago(hours=7)
    with store.begin() as tx:
        about = {"agent": "build", "model": MODEL, "owner": "jonas", "metadata": {"title": "Move the login to the new form"}}
        chat = tx.chat.sessions.create(**about, workspace_root="/home/jonas/shop-web", id="chat-tools").id
        tx.chat.messages.append(chat, role="user", parts=_text("Move the login page to the new form, and clean up."))
    times.later(2)
    with store.record(chat, model=MODEL, agent="build") as recorder:
        recorder.feed_many([{"type": "start", "messageId": "answer-tools"}, {"type": "start-step"}])
        recorder.feed_many(called("t-done", "read", {"path": "login.jsx"}, {"text": "export function Login() {}"}))
        recorder.feed_many(called("t-failed", "bash", {"command": "npm run lint"}, error="login.jsx: 'user' is not defined"))
        recorder.feed_many(called("t-denied", "bash", {"command": "rm -r old/"}))
        recorder.feed({"type": "tool-approval-request", "toolCallId": "t-denied", "approvalId": "leave-denied"})
        recorder.feed({"type": "tool-approval-response", "approvalId": "leave-denied", "approved": False, "reason": "Keep it."})
        recorder.feed({"type": "tool-output-denied", "toolCallId": "t-denied"})
        recorder.feed_many(called("t-allowed", "bash", {"command": "git push --force-with-lease"}))
        recorder.feed({"type": "tool-approval-request", "toolCallId": "t-allowed", "approvalId": "leave-given"})
        recorder.feed({"type": "tool-approval-response", "approvalId": "leave-given", "approved": True, "reason": "Go on."})
        recorder.feed_many(called("t-asks", "bash", {"command": "npm publish"}))
        recorder.feed({"type": "tool-approval-request", "toolCallId": "t-asks", "approvalId": "leave-open"})
        recorder.feed_many(called("t-waits", "ask_user", {"question": "Which colour has the button?"}))
        recorder.feed({"type": "tool-input-start", "toolCallId": "t-streams", "toolName": "write"})
        for piece in ('{"path": "form.jsx", "text": "export ', "function Form() { return <form"):
            recorder.feed({"type": "tool-input-delta", "toolCallId": "t-streams", "inputTextDelta": piece})
        recorder.feed({"type": "steering-message", "id": "steer-1", "parts": _text("Leave the old form until Monday.")})
    ids |= {"tools_chat": chat, "tools_answer": "answer-tools"}


def _asks_for_leave(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(minutes=45)
    with store.begin() as tx:
        about = {"agent": "support", "model": SMALL, "owner": "otto", "metadata": {"title": "Refund for order 5120"}}
        chat = tx.chat.sessions.create(**about, id="chat-refund").id
        tx.chat.messages.append(chat, role="user", parts=_text("Order 5120 was charged twice. Refund the second charge."))
    times.later(2)
    with store.record(chat, model=SMALL, agent="support") as recorder:
        recorder.feed_many([{"type": "start", "messageId": "answer-refund"}, {"type": "start-step"}])
        recorder.feed_many(
            told("text", "t", "The second charge is from the 3rd, 7.45. I may refund it when you allow it.", pieces=3)
        )
        recorder.feed_many(called("call-refund", "refund", {"order": 5120, "amount": "7.45"}))
        recorder.feed({"type": "tool-approval-request", "toolCallId": "call-refund", "approvalId": "leave-refund"})
        recorder.feed({"type": "finish-step"})
        recorder.step_usage(0, input_tokens=1_400, output_tokens=60, cost_usd=0.0013)
        recorder.feed({"type": "finish", "finishReason": "tool-calls"})
    ids |= {"approval_chat": chat, "approval": "leave-refund"}


def _long_and_compacted(store: Store, times: Times, ids: Ids) -> Scene:
    """A chat of many messages: old ones are summed up, some were taken back, others wait for their turn."""
    yield times.ago(days=4)
    with store.begin() as tx:
        about = {"agent": "researcher", "model": MODEL, "owner": "ines", "metadata": {"title": "Which queue fits our load?"}}
        chat = tx.chat.sessions.create(**about, id="chat-queues").id
        said = []
        for number in range(60):
            role, words = ("user", "And how do they fare with") if number % 2 == 0 else ("assistant", "Well enough, with")
            parts = _text(f"{words} {(number // 2 + 1) * 100} jobs a minute{'?' if role == 'user' else '.'}")
            usage = {"usage": {"input": 700 + 90 * number, "output": 30}} if role == "assistant" else None
            said.append(tx.chat.messages.append(chat, role=role, parts=parts, metadata=usage).id)
            times.later(50)
        summary = (
            "Five queues were compared, up to 3,000 jobs a minute. Two need a server of their own. The database is fast enough."
        )
        tx.chat.messages.compact(chat, summary=summary, tail_start_id=said[-2], auto=True, summary_tokens=31)
        ids["compacted_chat"] = chat
    yield times.ago(days=3, hours=20)
    with store.begin() as tx:
        asked = tx.chat.messages.append(chat, role="user", parts=_text("Write the recommendation, in one page."))
        times.later(30)
        tx.chat.messages.append(chat, role="assistant", parts=_text("# Recommendation\n\nBuy a hosted queue."))
        times.later(60)
        tx.chat.sessions.rewind(chat, asked.id)
        tx.chat.messages.append(chat, role="assistant", parts=_text("# Recommendation\n\nKeep the queue in the database."))
        times.later(60)
        for number, words in enumerate(("Add what it costs.", "Then send it to otto.")):
            tx.chat.messages.enqueue(chat, parts=_text(words), id=f"queued-{number}")


def _forks(store: Store, times: Times, ids: Ids) -> Scene:
    """A chat with forks of forks."""
    yield times.ago(days=2)
    with store.begin() as tx:
        sessions, messages = tx.chat.sessions, tx.chat.messages
        about = {"agent": "plan", "model": MODEL, "owner": "maria", "metadata": {"title": "Plan of the checkout"}}
        root = sessions.create(**about, id="chat-plan").id
        asked = []
        for question, answer in (
            ("How could the checkout be faster?", "Fewer queries, a cache, or one page in the place of three."),
            ("Which one first?", "Fewer queries: a day of work, and half of the time."),
            ("And then?", "One page, if you want to redesign it anyway."),
        ):
            asked.append(messages.append(root, role="user", parts=_text(question)).id)
            times.later(9)
            messages.append(root, role="assistant", parts=_text(answer))
            times.later(60)
        forks = [sessions.fork(root, asked[1], metadata={"title": "Plan of the checkout: with a cache"}).id]
        times.later(5)
        messages.append(forks[0], role="assistant", parts=_text("A cache: two days, but it must be emptied when prices change."))
        last = messages.append(forks[0], role="user", parts=_text("Who empties it?"))
        times.later(60)
        forks.append(sessions.fork(root, asked[2], metadata={"title": "Plan of the checkout: one page"}).id)
        forks.append(sessions.fork(forks[0], last.id, metadata={"title": "Plan of the checkout: a cache that empties itself"}).id)
        messages.append(forks[2], role="assistant", parts=_text("A trigger on the table of prices."))
        ids |= {"forked_chat": root, "forks": forks}
        old = sessions.create(agent="plan", model=SMALL, owner="otto", metadata={"title": "An old plan"}, id="chat-old").id
        messages.append(old, role="user", parts=_text("Shall we move to a monorepo?"))
        sessions.archive(old)
        ids["archived_chat"] = old


def _ended_badly(store: Store, times: Times, ids: Ids) -> Scene:
    """An answer that somebody stopped, and one that an error ended."""
    for name, title, half in (
        ("chat-stopped", "A poem about queues", "First in, first out, the letters wait in"),
        ("chat-broken", "What did the last release change?", "The last release changed thirty-one"),
    ):
        yield times.today(0.65)
        with store.begin() as tx:
            tx.chat.sessions.create(agent="support", model=SMALL, owner="otto", metadata={"title": title}, id=name)
            tx.chat.messages.append(name, role="user", parts=_text(title))
        times.later(1)
        with store.record(name, model=SMALL, agent="support") as recorder:
            recorder.feed_many([{"type": "start"}, {"type": "start-step"}, *list(told("text", "t", half, pieces=3))[:-1]])
            if name == "chat-stopped":
                store.chat.sessions.request_stop(name)
                recorder.feed({"type": "abort"})
            else:
                recorder.feed({"type": "error", "errorText": "529: overloaded"})
    ids |= {"stopped_chat": "chat-stopped", "broken_chat": "chat-broken"}


def _for_those_who_talk(store: Store, times: Times, ids: Ids) -> Scene:
    """Two chats of which each has been answered once; `talking` goes on with them."""
    yield times.ago(minutes=2)
    for name, agent, title in zip(
        LIVE, ("reviewer", "researcher"), ("Review of pull request 422", "Notes on queues"), strict=True
    ):
        with store.begin() as tx:
            tx.chat.sessions.create(agent=agent, model=MODEL, owner="jonas", metadata={"title": title, "live": True}, id=name)
            tx.chat.messages.append(name, role="user", parts=_text(f"{title}, please: tell me while you read."))
            times.later(1)
        with store.record(name, model=MODEL, agent=agent) as recorder:
            recorder.feed_many([{"type": "start"}, {"type": "start-step"}, *told("text", "t", "Gladly. One moment.", pieces=2)])
            recorder.feed_many([{"type": "finish-step"}, {"type": "finish"}])
    ids["live_chats"] = list(LIVE)
