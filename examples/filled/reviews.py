"""Runs of workflows that a newcomer looks at first: one that went through everything, and those that wait for somebody."""

from collections.abc import Iterable
from datetime import timedelta

from examples.filled.times import Ids, Scene, Times
from persist import Store

LEASE = timedelta(minutes=30)
LOG = "ses-review-412"
"""The session log of the phase in which the finished review read its pull request."""
LARGE, SMALL, CODE = "lighthouse-large-2", "lighthouse-small-2", "pebble-code-1"
FILES = ("checkout/totals.py", "checkout/rounding.py", "tests/test_totals.py")


def scenes(store: Store, times: Times, ids: Ids) -> Iterable[Scene]:
    """Every run of this module, each a scene."""
    yield _finished(store, times, ids)
    yield _waits_for_approval(store, times, ids)
    yield _waits_for_words(store, times, ids)
    yield _waits_for_two(store, times, ids)
    yield _waits_for_a_signal(store, times, ids)
    yield _waits_for_children(store, times, ids)


def _finished(store: Store, times: Times, ids: Ids) -> Scene:
    """A review with a failed attempt, a signal, a gate, children, effects and a graph of nodes, which succeeded."""
    runs = store.workflows.runs
    yield times.ago(days=2, hours=3)
    context = {"title": "Totals are a cent off", "pull": 412, "branch": "fix/totals", "asked_by": "ines"}
    about = {"trigger_id": "example/shop-api#412", "repo": "example/shop-api", "issue_number": 412, "context": context}
    run = runs.create("review", **about, current_phase="read", status="queued", max_attempts=3, id="run-review-412").id
    ids["finished_run"] = run

    times.later(4)
    lease = runs.claim("reviewer-1", lease=LEASE, workflow_name="review")
    with store.begin() as tx:
        for node in ("read", "plan", "files", "ci", "gate", "publish"):
            tx.workflows.runs.update_node_status(run, node, {"state": "waiting"}, lease=lease)
        tx.workflows.runs.update_node_status(run, "read", {"state": "running"}, lease=lease)
        reading = tx.workflows.phases.begin(run, "read", lease=lease)
        tx.workflows.effects.begin(run, "checkout", {"branch": "fix/totals"}, lease=lease)
        times.later(6)
        tx.workflows.effects.complete(run, "checkout", {"commit": "8d1f03c", "files": len(FILES)})
        times.later(40)
        tx.workflows.phases.finish(
            reading,
            output="Three files change. Totals are rounded once for each line; the tax is computed from the rounded sums.",
            entry={"status": "done", "files": len(FILES)},
            lease=lease,
            turns=6,
            duration_ms=46_000,
            cost_usd=0.041,
            input_tokens=18_200,
            output_tokens=640,
            cache_read_input_tokens=9_100,
            api_duration_ms=31_500,
            session_id=LOG,
            stop_reason="end_turn",
            model=LARGE,
            provider="lighthouse",
        )
        tx.workflows.runs.update_node_status(run, "read", {"state": "done", "seconds": 46}, lease=lease)
        times.later(2)
        planning = tx.workflows.phases.begin(run, "plan", lease=lease)
        times.later(12)
        tx.workflows.phases.fail(planning, "the model answered 529: overloaded", output="I will look at", lease=lease)
        tx.workflows.runs.release(lease, retry_in=timedelta(seconds=30), error="the model answered 529: overloaded")

    yield times.ago(days=2, hours=2, minutes=57)
    lease = runs.claim("reviewer-2", lease=LEASE, workflow_name="review")
    with store.begin() as tx:
        planning = tx.workflows.phases.begin(run, "plan", lease=lease)
        times.later(20)
        used = {"input_tokens": 4_100, "output_tokens": 380, "cost_usd": 0.012, "duration_ms": 20_000, "turns": 2}
        output = "1. Look at each file by itself.\n2. Wait for the tests.\n3. Ask before the comment is published."
        tx.workflows.phases.finish(planning, output=output, lease=lease, model=LARGE, provider="lighthouse", **used)
        tx.workflows.runs.update_node_status(run, "plan", {"state": "done", "attempts": 2}, lease=lease)
        children = [
            tx.workflows.runs.create(
                "review-file",
                trigger_id=f"example/shop-api#412/{file}",
                current_phase="look",
                context={"file": file},
                status="queued",
                parent_run_id=run,
                idempotency_key=f"{run}/{file}",
                id=f"run-file-{number}",
            ).id
            for number, file in enumerate(FILES)
        ]
        tx.workflows.runs.join(lease)
    ids["child_runs"] = children

    yield times.ago(days=2, hours=2, minutes=55)
    for number in range(len(children)):
        lease = runs.claim(f"reviewer-{number % 2 + 1}", lease=LEASE, workflow_name="review-file")
        with store.begin() as tx:
            looking = tx.workflows.phases.begin(lease.run_id, "look", lease=lease)
            times.later(15)
            used = {"input_tokens": 2_400 + 900 * number, "output_tokens": 210, "cost_usd": 0.006 + 0.002 * number}
            tx.workflows.phases.finish(looking, output="Nothing to remark.", lease=lease, model=CODE, provider="pebble", **used)
            tx.workflows.runs.complete(lease)

    yield times.ago(days=2, hours=2, minutes=50)
    lease = runs.claim("reviewer-1", lease=LEASE, workflow_name="review")
    with store.begin() as tx:
        tx.workflows.runs.update_node_status(run, "files", {"state": "done", "children": len(children)}, lease=lease)
        tx.workflows.runs.merge_scratch(run, {"remarks": 2, "severity": "minor"}, lease=lease)
        tx.workflows.signals.wait(lease, "tests-finished", timeout=timedelta(hours=1))
    yield times.ago(days=2, hours=2, minutes=41)
    store.workflows.signals.send(run, "tests-finished", {"passed": 812, "failed": 0}, idempotency_key="hook-5501")
    store.workflows.signals.send(run, "comment-added", {"by": "otto", "text": "Please keep it short."})
    times.later(3)
    lease = runs.claim("reviewer-1", lease=LEASE, workflow_name="review")
    with store.begin() as tx:
        tx.workflows.signals.take(run, "tests-finished", lease=lease)
        tx.workflows.runs.update_node_status(run, "ci", {"state": "done", "passed": 812}, lease=lease)
        tx.workflows.executions.skip("review:benchmarks", "example/shop-api#412", reason="nothing hot", workflow_run_id=run)
        gate = tx.workflows.approvals.pause_for_approval(
            run,
            gate="publish",
            summary="Publish two remarks on pull request 412?",
            marker=("ask", {"remarks": 2}),
            requested_by="reviewer-1",
            lease=lease,
        )
        tx.workflows.runs.release(lease)
    ids["answered_gate"] = gate.id

    yield times.ago(days=2, hours=2, minutes=29)
    answered = {"by": "ines", "response": "Yes, and thank you.", "scratch": {"published_by": "ines"}}
    store.workflows.approvals.resolve_and_resume(gate.id, **answered)
    times.later(2)
    lease = runs.claim("reviewer-2", lease=LEASE, workflow_name="review")
    with store.begin() as tx:
        tx.workflows.runs.update_node_status(run, "gate", {"state": "done", "by": "ines"}, lease=lease)
        publishing = tx.workflows.phases.begin(run, "publish", lease=lease)
        effects = tx.workflows.effects
        effects.begin(run, "comment", {"body": "Round once, at the end."}, lease=lease)
        times.later(5)
        effects.fail(run, "comment", "502 Bad Gateway")
        effects.begin(run, "comment", {"body": "Round once, at the end."}, retry="failed", lease=lease)
        times.later(3)
        effects.complete(run, "comment", {"url": "https://github.com/example/shop-api/pull/412#issuecomment-1"})
        effects.begin(run, "label", {"label": "reviewed"}, lease=lease)
        effects.fail(run, "label", "403: labels are not the reviewer's to set")
        effects.begin(run, "notify-ines", lease=lease)
        used = {"input_tokens": 1_900, "output_tokens": 150, "cost_usd": 0.004, "turns": 1}
        tx.workflows.phases.finish(publishing, output="Two remarks published.", lease=lease, model=SMALL, **used)
        tx.workflows.runs.update_node_status(run, "publish", {"state": "done"}, lease=lease)
        tx.workflows.runs.finish(run, "succeeded", terminal_marker=("done", {"remarks": 2}), lease=lease)


def _waits_for_approval(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(hours=3)
    with store.begin() as tx:
        run = _begun(tx, "release", "shop-api v2.14", "build", "run-release-214", {"version": "2.14", "commits": 31})
        phase = tx.workflows.phases.begin(run, "build")
        times.later(90)
        tx.workflows.phases.finish(phase, output="Built and tested on staging.", model=CODE, input_tokens=3_000, cost_usd=0.009)
        gate = tx.workflows.approvals.pause_for_approval(
            run,
            gate="deploy",
            summary="Deploy version 2.14 to production? 31 commits, one migration that only adds a column.",
            marker=("deploy", {"version": "2.14"}),
            requested_by="release-bot",
        )
        ids |= {"waiting_run": run, "gate": gate.id}


def _waits_for_words(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(days=1, hours=2)
    with store.begin() as tx:
        run = _begun(tx, "support", "mail/8841", "answer", "run-mail-8841", {"from": "a customer", "subject": "A double charge"})
        phase = tx.workflows.phases.begin(run, "read")
        times.later(8)
        tx.workflows.phases.finish(phase, output="Charged twice on the 3rd.", model=SMALL, input_tokens=900, cost_usd=0.001)
        gate = tx.workflows.approvals.pause_for_approval(
            run,
            gate="refund",
            summary="The customer was charged twice. How much shall we refund, and what shall I write?",
            marker=("refund", None),
            kind="reply",
            requested_by="support-agent",
        )
        ids |= {"reply_run": run, "reply_gate": gate.id}


def _waits_for_two(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(hours=9)
    with store.begin() as tx:
        run = _begun(tx, "research", "question/77", "collect", "run-research-77", {"question": "Which queue fits our load?"})
        approvals = tx.workflows.approvals
        first = approvals.pause_for_approval(
            run,
            gate="budget",
            summary="The survey needs about 4 dollars more. Go on?",
            marker=("budget", {"usd": 4}),
            requested_by="researcher",
            expires_at=times.coming(hours=6),
        )
        second = approvals.request(
            run,
            gate="scope",
            summary="Are hosted queues in scope, or only what we run ourselves?",
            kind="reply",
            requested_by="researcher",
            expires_at=times.coming(days=2),
            on_expiry="resumed",
        )
        ids |= {"two_gates_run": run, "expiring_gate": first.id, "scope_gate": second.id}


def _waits_for_a_signal(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(hours=5)
    with store.begin() as tx:
        about = {"trigger_id": "order/5120", "current_phase": "wait", "status": "queued"}
        tx.workflows.runs.create("ship", **about, context={"order": 5120}, id="run-ship-5120")
        lease = tx.workflows.runs.claim("shipping-1", lease=LEASE, workflow_name="ship")
        tx.workflows.signals.wait(lease, "paid", timeout=timedelta(days=3))
        ids["signal_run"] = lease.run_id


def _waits_for_children(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(hours=2)
    with store.begin() as tx:
        runs = tx.workflows.runs
        runs.create("survey", trigger_id="survey/9", current_phase="ask", status="queued", id="run-survey-9")
        lease = runs.claim("researcher-1", lease=LEASE, workflow_name="survey")
        for number, (place, status) in enumerate([("forums", "running"), ("papers", "running"), ("changelogs", "queued")]):
            about = {"trigger_id": f"survey/9/{place}", "current_phase": "search", "context": {"place": place}}
            runs.create("search", **about, status=status, parent_run_id=lease.run_id, id=f"run-search-{number}")
        runs.join(lease, "first_failure")
        times.later(200)
        phase = tx.workflows.phases.begin("run-search-0", "search")
        times.later(60)
        tx.workflows.phases.finish(phase, output="Nine threads.", model=SMALL, input_tokens=7_000, cost_usd=0.007)
        runs.finish("run-search-0", "succeeded")
        ids["joining_run"] = lease.run_id


def _begun(tx, workflow, trigger, phase, id, context):
    return tx.workflows.runs.create(workflow, trigger_id=trigger, current_phase=phase, context=context, id=id).id
