"""The queue of runs, what holds it back, what failed today, and what is fired by the clock."""

from collections.abc import Iterable
from datetime import timedelta
from importlib.util import find_spec

from examples.filled.times import Ids, Scene, Times
from persist import Store

LONG, SHORT = timedelta(hours=1), timedelta(seconds=20)
LEASED, WORKER = "run-inbox", "mail-1"
"""A run that a worker holds, and the worker."""


def scenes(store: Store, times: Times, ids: Ids) -> Iterable[Scene]:
    """Every scene of the queue, of limits and of schedules."""
    yield _switches(store, times, ids)
    if find_spec("cronsim") is not None:  # the extra schedules
        yield _schedules(store, times, ids)
    yield _failures(store, times, ids)
    yield _restarted_too_often(store, times, ids)
    yield _limits(store, times, ids)
    yield _ready(store, times, ids)
    yield _held(store, times, ids)
    yield _under_way(store, times, ids)


def _switches(store: Store, times: Times, ids: Ids) -> Scene:
    """What an operator switched off."""
    yield times.ago(days=6)
    overrides = store.workflows.workflow_overrides
    overrides.set("dependency-updates", enabled=False, by="otto")
    overrides.set("review", enabled=True, by="maria")
    ids["switched_off"] = "dependency-updates"


def _schedules(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(days=3)
    with store.begin() as tx:
        schedules, overrides = tx.workflows.schedules, tx.workflows.cron_overrides
        about = {"workflow_name": "nightly-report", "context": {"for": "everyone"}}
        schedules.set("nightly-report", **about, cron="30 2 * * *", timezone="Europe/Berlin")
        schedules.set("inbox", workflow_name="support-inbox", cron="*/15 8-18 * * *", timezone="Asia/Tokyo", catch_up="none")
        schedules.set("updates", workflow_name="dependency-updates", cron="0 5 * * 1", enabled=False)
        overrides.set("inbox", enabled=False, by="otto")
        ids["schedule"] = "nightly-report"
    yield times.ago(days=2)
    for fired in store.workflows.schedules.fire_due():
        store.workflows.runs.cancel(fired.id, reason="the report of that night was written by hand")
    yield times.ago(days=1)
    _write_reports(store, times)
    yield times.ago(hours=2)
    _write_reports(store, times)
    with store.begin() as tx:  # one that has not fired yet, whatever day it is
        tx.workflows.schedules.set("weekly-digest", workflow_name="digest", cron="0 9 * * mon", timezone="America/New_York")
        tx.workflows.cron_overrides.set("weekly-digest", schedule="0 7 * * mon", by="ines")


def _write_reports(store: Store, times: Times) -> None:
    """What is due is fired, and done at once."""
    for fired in store.workflows.schedules.fire_due():
        lease = store.workflows.runs.claim("reports-1", lease=LONG, workflow_name=fired.workflow_name)
        with store.begin() as tx:
            phase = tx.workflows.phases.begin(lease.run_id, "write", lease=lease)
            times.later(70)
            used = {"input_tokens": 12_000, "output_tokens": 900, "cost_usd": 0.03}
            tx.workflows.phases.finish(phase, output="All is well.", lease=lease, model="lighthouse-small-2", **used)
            tx.workflows.runs.complete(lease)


def _failures(store: Store, times: Times, ids: Ids) -> Scene:
    """One failure of most kinds, all of today."""
    runs = store.workflows.runs
    yield times.today(0.2)
    with store.begin() as tx:
        run = _running(tx, "review", "example/shop-web#91", "run-review-91", {"pull": 91})
        phase = tx.workflows.phases.begin(run, "read")
        times.later(5)
        tx.workflows.phases.fail(phase, "git: could not read from the remote repository", output="Cloning into 'shop-web'...")
        tx.workflows.runs.finish(run, "failed", error="git: could not read from the remote repository")
        ids["failed_run"] = run
    yield times.today(0.35)
    with store.begin() as tx:
        run = _running(tx, "release", "shop-web v5.0", "run-release-50", {"version": "5.0"})
        about = {"gate": "deploy", "summary": "Deploy version 5.0 to production?", "marker": ("deploy", {})}
        gate = tx.workflows.approvals.pause_for_approval(run, **about, requested_by="release-bot")
        ids["rejected_run"] = run
    yield times.today(0.4)
    store.workflows.approvals.resolve_and_fail(gate.id, by="maria", reason="Not on a Friday.")
    yield times.today(0.45)
    runs.create("import-orders", trigger_id="feed/orders", current_phase="read", status="queued", max_attempts=2, id="run-feed")
    for error in ("the feed answered 503", "the feed answered 504"):
        lease = runs.claim("import-1", lease=LONG, workflow_name="import-orders")
        times.later(2)
        runs.release(lease, retry_in=timedelta(0), error=error)
    ids["retried_run"] = "run-feed"
    yield times.today(0.6)
    about = {"trigger_id": "mail/8790", "current_phase": "answer", "context": {"subject": "Where is my parcel?"}}
    store.workflows.runs.create("answer-mail", **about, status="queued", id="run-mail-8790")
    times.later(30)
    runs.expire_queued("run-mail-8790", "nobody took it within an hour")
    ids["expired_run"] = "run-mail-8790"
    with store.begin() as tx:
        run = _running(tx, "research", "question/70", "run-research-70", {"question": "Is it worth to move?"})
        about = {"gate": "budget", "summary": "Two dollars more?", "marker": ("budget", {"usd": 2})}
        tx.workflows.approvals.pause_for_approval(run, **about, requested_by="researcher", expires_at=times.today(0.7))
        ids["gate_expired_run"] = run
    yield times.today(0.75)
    store.workflows.approvals.expire_due()
    with store.begin() as tx:
        run = _running(tx, "review", "example/shop-api#398", "run-review-398", {"pull": 398})
        tx.workflows.executions.start(
            trigger_type="github", trigger_id="example/shop-api#398", skill="review:read", workflow_run_id=run
        )
        tx.workflows.runs.cancel(run, reason="the pull request was closed")
        ids["cancelled_run"] = run


def _restarted_too_often(store: Store, times: Times, ids: Ids) -> Scene:
    """A worker that died three times, each time with the same run."""
    runs = store.workflows.runs
    yield times.today(0.5)
    about = {"trigger_id": "push/8d1f03c", "current_phase": "read", "context": {"commit": "8d1f03c"}}
    runs.create("index-code", **about, status="queued", max_restarts=2, id="run-index")
    ids["restarted_run"] = "run-index"
    for part in (0.51, 0.53, 0.55, 0.57):
        yield times.today(part)
        lease = runs.claim("index-1", lease=timedelta(milliseconds=1), workflow_name="index-code")
        if lease is not None:
            store.workflows.phases.begin("run-index", "read", lease=lease)


def _limits(store: Store, times: Times, ids: Ids) -> Scene:
    """Limits of a workflow and of a customer that are full, one that has room, and one of a rate."""
    yield times.ago(minutes=50)
    with store.begin() as tx:
        limits, runs = tx.workflows.limits, tx.workflows.runs
        limits.set("workflow:answer-mail", concurrency=2)
        limits.set("customer-7", concurrency=1, rate=20, per=timedelta(hours=1))
        limits.set("workflow:send-newsletter", rate=1, per=timedelta(hours=12))
        limits.set("workflow:review", concurrency=8)
        for number in range(4):
            about = {"trigger_id": f"mail/88{50 + number}", "current_phase": "answer"}
            runs.create("answer-mail", **about, status="queued", id=f"run-answer-{number}")
        for number in range(3):
            about = {"trigger_id": f"customer-7/{number}", "current_phase": "sync", "concurrency_key": "customer-7"}
            runs.create("sync-customer", **about, status="queued", id=f"run-sync-{number}")
        for number in range(2):
            about = {"trigger_id": f"letter/{number}", "current_phase": "send"}
            runs.create("send-newsletter", **about, status="queued", id=f"run-letter-{number}")
        ids |= {"full_limit": "workflow:answer-mail", "full_key": "customer-7", "limited_run": "run-answer-3"}
    for name in ("answer-mail", "sync-customer", "send-newsletter"):
        store.workflows.runs.claim("mail-2", lease=timedelta(hours=3), workflow_name=name, limit=2)


def _ready(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(minutes=40)
    with store.begin() as tx:
        for number, priority in enumerate((0, 0, 5)):
            about = {"trigger_id": f"example/shop-api#4{20 + number}", "current_phase": "read", "repo": "example/shop-api"}
            context = {"pull": 420 + number, "title": ("Fewer queries", "A clearer error", "Fix the login")[number]}
            tx.workflows.runs.create(
                "review", **about, context=context, priority=priority, status="queued", id=f"run-review-{420 + number}"
            )
            times.later(20)
        ids |= {"ready_run": "run-review-420", "urgent_run": "run-review-422"}


def _held(store: Store, times: Times, ids: Ids) -> Scene:
    """Runs that wait for an instant, for an operator and for money."""
    yield times.ago(minutes=35)
    with store.begin() as tx:
        runs = tx.workflows.runs
        about = {"trigger_id": "report/weekly", "current_phase": "write", "status": "queued"}
        runs.create("digest", **about, not_before=times.coming(hours=20), id="run-digest")
        runs.create(
            "remind",
            trigger_id="order/5120",
            current_phase="mail",
            status="queued",
            not_before=times.coming(days=3),
            id="run-remind",
        )
        about = {"trigger_id": "lockfile", "current_phase": "look", "status": "queued"}
        runs.create("dependency-updates", **about, id="run-updates")
        about = {"trigger_id": "question/79", "current_phase": "collect", "status": "queued"}
        runs.create("research", **about, concurrency_key="agent:researcher", id="run-research-79")
        ids |= {"delayed_run": "run-digest", "held_run": "run-updates", "unpaid_run": "run-research-79"}
    yield times.ago(minutes=20)
    with store.begin() as tx:
        about = {"trigger_id": "sitemap", "current_phase": "fetch", "status": "queued", "max_attempts": 5}
        tx.workflows.runs.create("crawl", **about, id="run-crawl")
        lease = tx.workflows.runs.claim("crawl-1", lease=LONG, workflow_name="crawl")
        tx.workflows.runs.release(lease, retry_in=timedelta(hours=1), error="429: too many requests")
        ids["backing_off_run"] = "run-crawl"


def _under_way(store: Store, times: Times, ids: Ids) -> Scene:
    """A run that a worker holds now, one whose worker has died, and one that a process without leases runs."""
    yield times.ago(minutes=15)
    with store.begin() as tx:
        runs = tx.workflows.runs
        runs.create("translate", trigger_id="docs/de", current_phase="read", status="queued", id="run-translate")
        dead = runs.claim("docs-1", lease=timedelta(minutes=2), workflow_name="translate")
        tx.workflows.phases.begin(dead.run_id, "read", lease=dead)
        ids["abandoned_run"] = dead.run_id
        run = _running(tx, "plan-sprint", "sprint/18", "run-sprint-18", {"goal": "Faster checkout"})
        tx.workflows.executions.start(
            trigger_type="manual", trigger_id="sprint/18", skill="plan-sprint:plan", workflow_run_id=run
        )
    yield times.ago(minutes=3)
    with store.begin() as tx:
        runs = tx.workflows.runs
        runs.create("support-inbox", trigger_id="inbox", current_phase="watch", status="queued", id=LEASED, max_restarts=1_000)
        lease = runs.claim(WORKER, lease=timedelta(minutes=10), workflow_name="support-inbox")
        phase = tx.workflows.phases.begin(LEASED, "open", lease=lease)
        times.later(4)
        tx.workflows.phases.finish(phase, output="14 new letters.", lease=lease)
        tx.workflows.executions.start(
            trigger_type="worker", trigger_id="inbox", skill="support-inbox:watch", workflow_run_id=LEASED, lease=lease
        )
        ids["leased_run"] = LEASED


def _running(tx, workflow, trigger, id, context):
    return tx.workflows.runs.create(workflow, trigger_id=trigger, current_phase="read", context=context, id=id).id
