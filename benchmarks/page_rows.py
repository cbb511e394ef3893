"""A large store for the pages of `persist ui`: two weeks of everything, and behind that many rows that have ended."""

from datetime import UTC, datetime, timedelta
from importlib import import_module

import persist
from benchmarks import filling, run_rows

_FIRST = 1_735_689_600  # 2025-01-01
_STATUSES = ("succeeded", "failed", "succeeded", "cancelled", "succeeded")
_QUEUED, _PAUSED = 200, 100
_STATUSES_TOLD = 1_000
"""How many are kept of a hundred instances, however many runs there are."""
_MESSAGES, _PARTS = 5, 2
TRANSCRIPT = "ses_transcript"
SPOKEN = 500
"""How many messages that chat has."""
_ANSWER = """\
The **build** fails since `config.load` no longer finds the file:

1. it looks in the *current folder*
2. the worker starts [elsewhere](https://example.org/docs)

```python
def load(path: str) -> dict:
    return json.loads(Path(path).read_text())
```

Give it the whole path, and it works again."""


def now_of(runs: int) -> datetime:
    """The instant at which a store of that size is looked at: just after its last run."""
    return datetime.fromtimestamp(_FIRST + runs + 60, UTC)


def fill(url: str, schema: str | None, runs: int) -> None:
    """So many runs, three tenths as many chats of ten parts each, and a tenth as many of what else can be listed."""
    persist.upgrade(url, schema=schema)
    examples = import_module("examples.filled")
    clock = examples.Clock()
    with persist.Store.open(url, schema=schema, clock=clock) as store:
        clock.set(now_of(runs))
        examples.fill(store, now_of(runs))
        clock.set(now_of(runs) - timedelta(hours=1))
        _waiting(store)
        _transcript(store)
    # the log of events notes all that there is when it is switched on: what ended long before is not in it
    filling.fill(url, schema, _TABLES, _statements(runs, lite=url.startswith("sqlite")))


_TABLES = (
    *("workflow_runs", "executions", "chat_sessions", "chat_messages", "chat_parts", "progressions", "sessions", "branches"),
    *("run", "messaging_sessions", "status_log", "usage_calls"),
)


def _statements(runs: int, *, lite: bool) -> list[str]:
    chats, others = max(1, runs * 3 // 10), max(1, runs // 10)
    return [
        run_rows.runs(runs, lite=lite, statuses=_STATUSES),
        run_rows.executions(runs, lite=lite),
        *_chats(chats, runs, lite=lite),
        *_conversations(others, runs, lite=lite),
        *_others(others, runs, lite=lite),
    ]


def _chats(count: int, seconds: int, *, lite: bool) -> list[str]:
    """Chats of five messages with two parts each, spread evenly over the time."""
    blob, step = "" if lite else "::jsonb", seconds * 1000 // count
    at = f"{_FIRST}000 + n * {step}"
    sessions = f"""
{filling.counted(count, lite=lite, insert="chat_sessions (id, agent, owner, model_json, created_at, updated_at, metadata_json)")}
SELECT {filling.id_of("ses", "n", lite=lite)}, 'agent-' || (n % 5), 'owner-' || (n % 50),
       '{{"provider_id":"pebble","model_id":"code"}}'{blob}, {at}, {at}, ('{{"title":"Question ' || n || '"}}'){blob}
FROM n"""
    at = f"{_FIRST}000 + n / {_MESSAGES} * {step} + n % {_MESSAGES} * 10"
    messages = f"""
{filling.counted(count * _MESSAGES, lite=lite, insert="chat_messages (id, session_id, role, created_at, updated_at)")}
SELECT {filling.id_of("msg", "n", lite=lite)}, {filling.id_of("ses", f"(n / {_MESSAGES})", lite=lite)},
       CASE n % 2 WHEN 0 THEN 'user' ELSE 'assistant' END, {at}, {at} FROM n"""
    message, each = f"(n / {_PARTS})", _MESSAGES * _PARTS
    at = f"{_FIRST}000 + n / {each} * {step} + {message} % {_MESSAGES} * 10"
    columns = 'id, message_id, session_id, "index", type, created_at, updated_at, data_json'
    parts = f"""
{filling.counted(count * each, lite=lite, insert=f"chat_parts ({columns})")}
SELECT {filling.id_of("prt", "n", lite=lite)}, {filling.id_of("msg", message, lite=lite)},
       {filling.id_of("ses", f"(n / {each})", lite=lite)}, n % {_PARTS}, 'text', {at}, {at},
       ('{{"type":"text","text":"{"word " * 20}' || n || '"}}'){blob} FROM n"""
    return [sessions, messages, parts]


def _conversations(count: int, seconds: int, *, lite: bool) -> list[str]:
    at = f"{_FIRST} + n * {seconds // count} + 0.5"
    progression, session = (filling.id_of(prefix, "n", lite=lite) for prefix in ("prg", "con"))
    return [
        f"{filling.counted(count, lite=lite, insert='progressions (id, created_at)')} SELECT {progression}, {at} FROM n",
        f"""
{filling.counted(count, lite=lite, insert="sessions (id, created_at, updated_at, name, agent_name, status, progression_id)")}
SELECT {session}, {at}, {at}, 'Talk ' || n, 'agent-' || (n % 7), 'completed', {progression} FROM n""",
        f"""
{filling.counted(count, lite=lite, insert="branches (id, created_at, session_id, progression_id, name)")}
SELECT {filling.id_of("bra", "n", lite=lite)}, {at}, {session}, {progression}, 'main' FROM n""",
    ]


def _others(count: int, seconds: int, *, lite: bool) -> list[str]:
    """Runs of programs, people's threads, what instances last said of themselves, and calls of models."""
    second = f"{_FIRST} + n * {seconds // count}"
    at = filling.instant(second, lite=lite)
    whole = f"strftime('%Y-%m-%d %H:%M:%S', {second}, 'unixepoch')" if lite else at
    return [
        f"""
{filling.counted(count, lite=lite, insert="run (id, program_path, started_at, updated_at, status)")}
SELECT {filling.id_of("pro", "n", lite=lite)}, 'programs/' || (n % 9), {whole}, {whole}, 'completed' FROM n""",
        f"""
{filling.counted(count, lite=lite, insert="messaging_sessions (id, platform, channel_id, user_id, created_at, last_activity_at)")}
SELECT {filling.id_of("mse", "n", lite=lite)}, 'slack', 'C', 'u' || n, {at}, {at} FROM n""",
        f"""
{filling.counted(_STATUSES_TOLD, lite=lite, insert="status_log (instance_id, occurred_at, new_status)")}
SELECT 'box-' || (n % 100), {_FIRST} + n, CASE n % 2 WHEN 0 THEN 'busy' ELSE 'idle' END FROM n""",
        f"""
{filling.counted(count, lite=lite, insert="usage_calls (scope, seq, occurred_at, model, token_input, cost_usd_micros)")}
SELECT 'bench', n + 1, {_FIRST}000 + n * {seconds // count * 1000}, 'code', 1000, 1500 FROM n""",
    ]


def _waiting(store: persist.Store) -> None:
    """Runs that wait: for a worker, and for a person."""
    with store.begin() as tx:
        for number in range(_QUEUED):
            key = f"customer-{number % 9}"
            tx.workflows.runs.create(
                "build", trigger_id=f"queued/{number}", current_phase="plan", status="queued", concurrency_key=key
            )
        for number in range(_PAUSED):
            run = tx.workflows.runs.create("release", trigger_id=f"paused/{number}", current_phase="apply")
            tx.workflows.approvals.request(run.id, gate="release", summary="May it go out?")


def _transcript(store: persist.Store) -> None:
    """A chat that a person has talked in for long: questions, and answers with reasoning, two tools and Markdown."""
    with store.begin() as tx:
        tx.chat.sessions.create(id=TRANSCRIPT, agent="bench", model={"provider_id": "pebble", "model_id": "code"})
        for number in range(SPOKEN // 2):
            asked = [{"type": "text", "text": f"Why does the build {number} fail? It worked yesterday."}]
            tx.chat.messages.append(TRANSCRIPT, role="user", parts=asked)
            answer = {"type": "text", "text": f"Build {number}. {_ANSWER}", "state": "done"}
            thought = {"type": "reasoning", "text": "It worked yesterday. " * 20, "state": "done"}
            tools = [_call(number, place) for place in (0, 1)]
            tx.chat.messages.append(TRANSCRIPT, role="assistant", parts=[{"type": "step-start"}, thought, *tools, answer])


def _call(number: int, place: int) -> dict[str, object]:
    return {
        "type": "tool-bash",
        "toolCallId": f"call-{number}-{place}",
        "state": "output-available",
        "input": {"command": "ls -la", "limits": [1, 2, 3]},
        "output": {"stdout": "app.py\n" * 20, "code": 0},
    }
