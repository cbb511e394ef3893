"""What instances of agents report: their status, usage, tools and links, and the tasks that they share."""

from collections.abc import Iterable
from datetime import timedelta

from examples.filled.times import Ids, Scene, Times
from persist import Store

WORKSPACE = "shop"
_SHOP = "https://github.com/example/shop-api"
_STATUSES = ["initializing", "idle", "busy", "question", "busy", "idle"]
_TOOLS = [("bash", 0, 420), ("read", 0, 12), ("bash", 1, 3_100), ("edit", 0, 35), ("web_fetch", None, 900), ("bash", 137, 60_000)]


def scenes(store: Store, times: Times, ids: Ids) -> Iterable[Scene]:
    """A scene for each instance, and one for the tasks."""
    for number, last in enumerate(("busy", "question", "crashed", "oom_killed")):
        yield _instance(store, times, f"box-{number + 1}", number, last)
    yield _tasks(store, times, ids)
    ids |= {"instance": "box-1", "asking_instance": "box-2", "crashed_instance": "box-3", "workspace": WORKSPACE}


def _instance(store: Store, times: Times, name: str, number: int, last: str) -> Scene:
    mine = {"instance_id": name}
    for day in range(3, -1, -1):
        yield times.ago(days=day, hours=1.5 + number / 4)
        with store.begin() as tx:
            telemetry = tx.telemetry
            for position, status in enumerate(_STATUSES):
                told = {"prompt": "Shall I push to main?"} if status == "question" else None
                telemetry.status.record(status, metadata=told, **mine)
                now = times.later(240)
                if position % 2:
                    continue
                used = {"token_input": 2_400 + 300 * position, "token_output": 160, "token_cache_read": 900}
                spent = {"cost_usd_micros": 6_200 + 100 * number, "duration_ms": 2_300}
                about = {"agent": "build", "owner": "jonas", "workspace_id": WORKSPACE, "provider": "pebble"}
                telemetry.usage.sample(at=now, model="pebble-code-1", **used, **spent, **about, **mine)
            for tool, exit_code, took in _TOOLS[: 3 + day]:
                telemetry.tools.record(tool, exit_code=exit_code, duration_ms=took, **mine)
                times.later(11)
    yield times.ago(minutes=9 - number)
    with store.begin() as tx:
        telemetry = tx.telemetry
        telemetry.tags.record("repo", _SHOP, **mine)
        telemetry.tags.record("pr", f"{_SHOP}/pull/{420 + number}", **mine)
        telemetry.tags.record("issue", f"{_SHOP}/issues/{400 + number}", **mine)
        found = {
            "pr_state": "open",
            "build_state": ("success", "pending", "failure", "success")[number],
            "review_state": "approved",
        }
        telemetry.links.upsert(
            f"{_SHOP}/pull/{420 + number}", fetched_at=times.later(1), pr_is_draft=number == 1, **found, **mine
        )
        telemetry.links.upsert(f"{_SHOP}/issues/{400 + number}", fetched_at=times.later(1), issue_state="open", **mine)
        if number == 2:
            telemetry.links.record_error(f"{_SHOP}/issues/402", "502 Bad Gateway", **mine)
        told = {"prompt": "The migration drops a column. Go on?"} if last == "question" else None
        telemetry.status.record(last, metadata=told, **mine)


def _tasks(store: Store, times: Times, ids: Ids) -> Scene:
    """Tasks in every state; one claim has expired."""
    mine = {"workspace_id": WORKSPACE}
    yield times.ago(hours=4)
    titles = (
        "Faster search",
        "A clearer error",
        "Fix the login",
        "Write the notes",
        "Remove the old form",
        "Dark colours",
        "A typo",
    )
    found = [
        {
            "id": f"shop#{400 + number}",
            "source_id": "tracker",
            "kind": "issue",
            "title": title,
            "labels": ["bug"] if number % 2 else ["feature", "small"],
            "links": [f"{_SHOP}/issues/{400 + number}"],
            "body": f"{title}, please. It was asked for {number + 1} times.",
        }
        for number, title in enumerate(titles)
    ]
    with store.begin() as tx:
        tasks = tx.telemetry.tasks
        tasks.poll(found, **mine)
        for ending in ("complete", "fail"):
            task = tasks.claim("box-1", **mine)
            times.later(600)
            getattr(tasks, ending)(task.id, outcome="merged" if ending == "complete" else "the tests do not pass", **mine)
        tasks.cancel("shop#406", **mine)
        expired = tasks.claim("box-3", lease=timedelta(minutes=5), **mine)
        ids["task"] = expired.id
    yield times.ago(minutes=2)
    with store.begin() as tx:
        for name in ("box-1", "box-2"):
            tx.telemetry.tasks.claim(name, max_parallel=4, lease=timedelta(minutes=30), **mine)
