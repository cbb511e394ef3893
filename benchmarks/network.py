"""What a verb waits for on a network: Postgres behind a proxy that keeps every message back for 0.5 ms.

A round trip takes 1 ms, and every verb is a transaction by itself. Beside it is the same by hand: one prepared statement that
commits by itself, however much it has to write, and no checks. A ratio of 1x means one round trip; the detail has the times.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import orjson

import persist
from benchmarks import filling, jobs
from benchmarks.distance import at_a_distance
from benchmarks.floors import now_ms
from benchmarks.measure import Operation, Row, interleaved, middle, us
from benchmarks.place import Place
from persist import Settings, Store
from tests.roundtrips.short_answer import SHORT_ANSWER

ROUNDS, WARM = 60, 6
_QUEUED = 2 * (ROUNDS + WARM)
_LEASE = timedelta(hours=1)
_GET = "SELECT id, agent, model_json, created_at, updated_at FROM chat_sessions WHERE id = %s"
_LIST = """
SELECT m.id, m.role, m.metadata_json::text, p.data_json::text
FROM (
  SELECT id, role, metadata_json, created_at FROM chat_messages WHERE session_id = %s ORDER BY created_at DESC, id DESC LIMIT 20
) m
JOIN chat_parts p ON p.message_id = m.id ORDER BY m.created_at, m.id, p."index"
"""
_CREATE = "INSERT INTO chat_sessions (id, agent, model_json, created_at, updated_at) VALUES (%s, 'bench', '{}', %s, %s)"
_CHUNK = "INSERT INTO raw_deltas VALUES (%s, %s, %s, %s)"
_DELTAS = (
    "CREATE TABLE raw_deltas (part text, seq bigint, created_at bigint NOT NULL, delta text NOT NULL, PRIMARY KEY (part, seq))"
)
_RUN = """
INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at, phase_history)
VALUES (%s, 'build', 't', 'plan', %s, %s, '[]') RETURNING id, status, started_at
"""
_CLAIM = """
UPDATE workflow_runs
SET status = 'running', lease_owner = 'hand', lease_expires_at = %s, lease_token = lease_token + 1, updated_at = %s
WHERE id = (SELECT id FROM workflow_runs WHERE status = 'queued' ORDER BY started_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, lease_token
"""
_PHASE = """
UPDATE workflow_runs SET current_phase = 'plan', updated_at = %s, phase_history = phase_history || %s::jsonb
WHERE id = %s RETURNING id
"""
_START = "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at) VALUES (%s, 'github', 't', 'build:plan', %s)"
_SAMPLE = """
INSERT INTO usage_samples (instance_id, occurred_at, token_input) VALUES ('hand', %s, 5) ON CONFLICT (instance_id, occurred_at)
DO UPDATE SET token_input = usage_samples.token_input + excluded.token_input RETURNING token_input
"""
_TALK = """
WITH found AS (SELECT id FROM messaging_sessions WHERE platform = 'slack' AND channel_id = 'hand' AND user_id = 'u' AND active),
made AS (
  INSERT INTO messaging_sessions (id, platform, channel_id, user_id, created_at, last_activity_at)
  SELECT %s, 'slack', 'hand', 'u', %s, %s WHERE NOT EXISTS (SELECT FROM found) RETURNING id
) SELECT id FROM found UNION ALL SELECT id FROM made
"""


def rows(place: Place) -> Iterator[Row]:
    """On Postgres."""
    if place.postgres is None:
        return
    persist.upgrade(place.postgres)
    with closing(filling.connect(place.postgres)) as near:
        near.execute(_DELTAS)
    with ExitStack() as stack:
        far = stack.enter_context(at_a_distance(place.postgres))
        raw = stack.enter_context(closing(filling.connect(far)))
        store = stack.enter_context(Store.open(far, settings=Settings(fold_ms=600_000)))
        run = raw.cursor().execute

        def ask() -> None:
            run("SELECT 1").fetchone()

        trip = middle(interleaved({"ask": ask}, rounds=ROUNDS, warm=WARM)["ask"])
        empty = middle(interleaved({"begin": lambda: _empty(store)}, rounds=ROUNDS, warm=WARM)["begin"])
        yield Row("an empty `begin()` vs `SELECT 1` by hand", empty / trip, float("inf"), f"{us(empty)} vs {us(trip)}")
        for name, (ours, hand) in _pairs(store, run, stack).items():
            taken = interleaved({"ours": ours, "hand": hand}, rounds=ROUNDS // 3 if place.quick else ROUNDS, warm=WARM)
            mine, theirs = middle(taken["ours"]), middle(taken["hand"])
            yield Row(f"{name} vs by hand", mine / theirs, float("inf"), f"{us(mine)} vs {us(theirs)}")


def _empty(store: Store) -> None:
    with store.begin():
        pass


def _pairs(store: Store, run: Callable[..., Any], stack: ExitStack) -> dict[str, tuple[Operation, Operation]]:
    """Each verb as a program calls it, and by hand."""
    numbers = count()
    chat, runs, box = store.chat, store.workflows.runs, "box"
    session = chat.sessions.create(agent="bench", model={}).id
    said = [{"type": "text", "text": "word " * 80}]
    for _ in range(40):
        chat.messages.append(session, role="user", parts=said)
    work = runs.create("build", trigger_id="t", current_phase="plan").id
    with store.begin() as tx:
        for _ in range(_QUEUED):
            tx.workflows.runs.create("build", trigger_id="t", current_phase="plan", status="queued")
    recorder = stack.enter_context(store.record(chat.sessions.create(agent="bench", model={}).id))
    recorder.feed_many(SHORT_ANSWER[:2])
    answered = chat.sessions.create(agent="bench", model={}).id

    def sql(statement: str, *values: object) -> Any:
        return run(statement, values, prepare=True)

    def listed() -> list[Any]:
        rows = sql(_LIST, session).fetchall()
        return [(id, role, orjson.loads(metadata), orjson.loads(part)) for id, role, metadata, part in rows]

    def appended() -> None:
        number = next(numbers)
        values = {"id": f"msg_hand_{number:017}", "part": f"prt_hand_{number:017}", "session": answered, "role": "user"}
        run(jobs.AT_ONCE, values | {"at": now_ms(), "data": orjson.dumps(said[0]).decode()}, prepare=True)

    def answer() -> None:
        with store.record(answered) as one:
            one.feed_many(SHORT_ANSWER)

    def phase() -> None:
        item = [{"phase": "plan", "timestamp": datetime.now(UTC).isoformat()}]
        sql(_PHASE, datetime.now(UTC), orjson.dumps(item).decode(), work)

    def new(prefix: str) -> str:
        return f"{prefix}_hand_{next(numbers):017}"

    def now() -> datetime:
        return datetime.now(UTC)

    return {
        "chat.sessions.get": (lambda: chat.sessions.get(session), lambda: sql(_GET, session).fetchone()),
        "chat.messages.list(limit=20)": (lambda: chat.messages.list(session, limit=20), listed),
        "chat.sessions.create": (
            lambda: chat.sessions.create(agent="bench", model={}),
            lambda: sql(_CREATE, new("ses"), now_ms(), now_ms()),
        ),
        "chat.messages.append": (lambda: chat.messages.append(answered, role="user", parts=said), appended),
        "a recorded chunk": (
            lambda: recorder.feed(SHORT_ANSWER[2]),
            lambda: sql(_CHUNK, "part", next(numbers), now_ms(), "Yes."),
        ),
        "a short answer, recorded as a whole,": (answer, appended),
        "workflows.runs.create": (
            lambda: runs.create("build", trigger_id="t", current_phase="plan"),
            lambda: sql(_RUN, new("run"), now(), now()).fetchone(),
        ),
        "workflows.runs.claim": (
            lambda: runs.claim("worker", lease=_LEASE),
            lambda: sql(_CLAIM, now() + _LEASE, now()).fetchone(),
        ),
        "workflows.runs.append_phase": (lambda: runs.append_phase(work, "plan"), phase),
        "workflows.executions.start": (
            lambda: store.workflows.executions.start(trigger_type="github", trigger_id="t", skill="build:plan"),
            lambda: sql(_START, new("exe"), now()),
        ),
        "telemetry.usage.sample": (
            lambda: store.telemetry.usage.sample(at=now(), token_input=5, instance_id=box),
            lambda: sql(_SAMPLE, now_ms() // 1000).fetchone(),
        ),
        "messaging.sessions.get_or_create": (
            lambda: store.messaging.sessions.get_or_create(platform="slack", channel_id="C", user_id="u"),
            lambda: sql(_TALK, new("mse"), now(), now()).fetchone(),
        ),
    }
