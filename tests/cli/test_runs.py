"""`persist runs`, on both databases."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.testing import FrozenClock
from persist.workflows.schemas import RunStatus
from tests.cli.conftest import EVIL, SHOWN, Command

pytestmark = pytest.mark.one_database


@pytest.fixture
def stored(database_url: str, clock: FrozenClock) -> list[str]:
    """Run ids, the oldest first: one that waits at a gate and holds text that would take over a terminal, then plain ones."""
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        run = tx.workflows.runs.create(
            f"triage{EVIL}",
            trigger_id=f"issue/42{EVIL}",
            current_phase="plan",
            repo=f"a/b{EVIL}",
            issue_number=42,
            context={f"title{EVIL}": f"Broken{EVIL}"},
        )
        phase = tx.workflows.executions.start(
            trigger_type="github", trigger_id=run.trigger_id, skill=f"plan{EVIL}", workflow_run_id=run.id, session_id=f"log{EVIL}"
        )
        tx.workflows.executions.finish(
            phase.id, success=False, error=f"two\nlines{EVIL}", input_tokens=1200, output_tokens=34, cost_usd=0.25
        )
        tx.workflows.runs.append_phase(run.id, "plan", {"note": EVIL})
        tx.workflows.runs.update_node_status(run.id, f"node{EVIL}", EVIL)
        tx.workflows.approvals.pause_for_approval(
            run.id, gate=f"review{EVIL}", summary=f"Ship it?{EVIL}", marker=("review", {}), scratch={"branch": EVIL}
        )
        ids = [run.id]
        for status in (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.SUCCEEDED):
            clock.advance(seconds=60)
            ids.append(tx.workflows.runs.create("build", trigger_id="cron/1", current_phase="go", status=status).id)
    return ids


def listed(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.split()


def test_ls_shows_the_last_started_first(command: Command, stored: list[str]) -> None:
    result = command("runs", "ls")
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["RUN", "WORKFLOW", "TRIGGER", "STATUS", "PHASE", "STARTED", "(UTC)", "TOKENS", "COST"]
    assert [row.split()[0] for row in rows] == stored[::-1]
    assert rows[0].split()[1:] == ["build", "cron/1", "succeeded", "go", "2026-01-02", "03:07:05", "-", "-"]
    assert rows[-1].split()[1:4] == [f"triage{SHOWN}", f"issue/42{SHOWN}", "paused"]
    assert rows[-1].split()[-2:] == ["1,234", "$0.2500"]


def test_ls_filters(command: Command, stored: list[str]) -> None:
    waiting, queued, running, succeeded = stored
    assert listed(command("runs", "ls", "-q", "--status", "running")) == [running]
    assert listed(command("runs", "ls", "-q", "--status", "queued", "--status", "running")) == [running, queued]
    assert listed(command("runs", "ls", "-q", "--workflow", "build")) == [succeeded, running, queued]
    assert listed(command("runs", "ls", "-q", "--trigger", f"issue/42{EVIL}")) == [waiting]
    assert listed(command("runs", "ls", "-q", "--workflow", "build", "--status", "paused")) == []
    assert listed(command("runs", "ls", "-q", "--since", "2026-01-02T03:06:05.678Z")) == [succeeded, running]
    assert listed(command("runs", "ls", "-q", "--since", "2026-01-02T03:06:05.679")) == [succeeded]
    assert listed(command("runs", "ls", "-q", "--since", "2026-01-02T04:06:05.678+01:00")) == [succeeded, running]
    assert listed(command("runs", "ls", "-q", "--since", "2026-01-03")) == []


def test_ls_pages(command: Command, stored: list[str], database_url: str) -> None:
    page = ("runs", "ls", "--workflow", "build", "--limit", "2")
    first = json.loads(command(*page, "--json").stdout)
    assert first.keys() == {"items", "cursor"}
    with Store.open(database_url) as store, store.read() as tx:
        found = tx.workflows.runs.list(workflow_name="build", limit=2)
    assert first == {"items": [run.model_dump(mode="json") for run in found.items], "cursor": found.cursor}
    assert command(*page).stderr == f"There are more: add --after {first['cursor']}\n"
    last = json.loads(command(*page, "--json", "--after", first["cursor"]).stdout)
    assert [item["id"] for item in last["items"]] == [stored[1]]
    assert last["cursor"] is None
    for wrong in (("--after", "nonsense"), ("--after", first["cursor"], "--status", "failed")):
        result = command(*page, *wrong)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--limit", "0"),
        ("--limit", "1001"),
        ("--status", "done"),
        ("--since", "yesterday"),
        ("--since", ""),
        ("--since", "0001-01-01T00:00:00+05:00"),
    ],
)
def test_ls_called_wrongly(command: Command, stored: list[str], wrong: tuple[str, ...]) -> None:
    result = command("runs", "ls", *wrong)
    assert (result.exit_code, result.stdout) == (2, "")


def test_show_is_everything_and_cannot_harm(command: Command, stored: list[str]) -> None:
    result = command("runs", "show", stored[0])
    assert result.exit_code == 0
    assert not {"\x1b", "\x9b", "\u202e"} & set(result.stdout)
    top, *sections = result.stdout.split("\n\n")
    header = dict(line.split(maxsplit=1) for line in top.splitlines())
    assert header["run"] == stored[0]
    assert header["workflow"] == f"triage{SHOWN}"
    assert header["repository"] == f"a/b{SHOWN}"
    assert (header["issue"], header["status"], header["phase"]) == ("#42", "paused", "review")
    assert (header["tokens"], header["cost"]) == ("1,234", "$0.2500")
    assert header["started"] == "2026-01-02 03:04:05 UTC"
    assert "finished" not in header
    lines = {section.splitlines()[0]: section.splitlines()[1:] for section in sections}
    assert list(lines) == ["context", "scratch", "nodes", "phases", "executions", "approvals"]
    assert lines["context"] == [f"  title{SHOWN}  Broken{SHOWN}"]
    assert lines["scratch"] == [f"  branch  {SHOWN}"]
    assert lines["nodes"] == [f"  node{SHOWN}  {SHOWN}"]
    assert [line.split()[1] for line in lines["phases"]] == ["plan", "review"]
    assert f"plan{SHOWN}  failed  1,234 tokens, $0.2500" in lines["executions"][0]
    assert lines["executions"][1:] == [f"    session log{SHOWN}", f"    error   two\\nlines{SHOWN}"]
    assert f"review{SHOWN}  pending" in lines["approvals"][0]
    assert lines["approvals"][1:] == [f"    approve Ship it?{SHOWN}"]


def test_show_says_who_answered_and_who_works(command: Command, stored: list[str], database_url: str) -> None:
    with Store.open(database_url) as store, store.begin() as tx:
        (gate,) = tx.workflows.approvals.pending()
        tx.workflows.approvals.resolve_and_fail(gate.id, by="maria", reason="too\x1b early")
        lease = tx.workflows.runs.claim("worker-7", lease=timedelta(hours=1))
        assert lease is not None
    shown = command("runs", "show", stored[0]).stdout
    assert "rejected by maria at 20" in shown
    assert "    answer  too\\x1b early\n" in shown
    assert "  error  Rejected: too\\x1b early\n" in shown
    assert "finished  " in shown
    assert "\nworker    worker-7 until 20" in command("runs", "show", lease.run_id).stdout


def test_show_counts_restarts(command: Command, stored: list[str], database_url: str) -> None:
    with Store.open(database_url) as store, store.begin() as tx:
        tx.workflows.runs.recover_interrupted()
    assert "\nrestarts  1 of at most 3\n" in command("runs", "show", stored[2]).stdout


def test_show_json_and_status(command: Command, stored: list[str], database_url: str) -> None:
    shown = json.loads(command("runs", "show", stored[0], "--json").stdout)
    with Store.open(database_url) as store, store.read() as tx:
        assert shown == {
            "run": tx.workflows.runs.get(stored[0]).model_dump(mode="json"),
            "executions": [e.model_dump(mode="json") for e in tx.workflows.executions.for_run(stored[0])],
            "approvals": [a.model_dump(mode="json") for a in tx.workflows.approvals.list_for_run(stored[0])],
            "children": [],
            "family": tx.workflows.runs.family(stored[0]).model_dump(mode="json"),
        }
    assert len(shown["executions"]) == len(shown["approvals"]) == 1
    assert command("runs", "show", stored[0], "-q").stdout == "paused\n"


@pytest.fixture
def family(database_url: str, stored: list[str]) -> list[str]:
    """A run that waits for its child, which waits at a gate that expires, and a grandchild."""
    with Store.open(database_url) as store, store.begin() as tx:
        runs = tx.workflows.runs
        runs.create("release", trigger_id="tag/1", current_phase="go", status="queued")
        lease = runs.claim("w", lease=timedelta(hours=1), workflow_name="release")
        assert lease is not None
        child = runs.create(f"publish{EVIL}", trigger_id="tag/1", current_phase="ask", parent_run_id=lease.run_id)
        grandchild = runs.create("build", trigger_id="tag/1", current_phase="go", parent_run_id=child.id)
        at = datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)
        tx.workflows.approvals.pause_for_approval(child.id, gate="g", summary="?", marker=("g", None), expires_at=at)
        assert runs.join(lease, "first_failure") is None
        used = tx.workflows.executions.start(trigger_type="t", trigger_id="t", skill="s", workflow_run_id=grandchild.id)
        tx.workflows.executions.finish(used.id, success=True, input_tokens=1200, cost_usd=0.5)
    return [lease.run_id, child.id, grandchild.id]


def test_a_family_is_shown(command: Command, family: list[str]) -> None:
    parent, child, grandchild = family
    shown = command("runs", "show", parent).stdout
    assert "its children, or the first that fails" in shown
    assert f"publish{SHOWN}  paused  g  {child}" in shown
    assert "3 runs: 2 paused, 1 running" in shown
    assert "1 executions, 1,200 tokens, $0.5000" in shown
    shown = command("runs", "show", child).stdout
    assert parent in shown
    assert grandchild in shown
    assert "expires 2027-01-02 03:04:05 UTC, then it is rejected" in shown
    assert EVIL not in shown
    assert listed(command("runs", "ls", "--parent", parent, "-q")) == [child]
    data = json.loads(command("runs", "show", parent, "--json").stdout)
    assert ([run["id"] for run in data["children"]], data["family"]["cost_usd"]) == ([child], 0.5)


def test_cancel_with_cascade_ends_a_family(command: Command, family: list[str], database_url: str) -> None:
    assert command("runs", "cancel", family[0], "--cascade", "--reason", "no").exit_code == 0
    with Store.open(database_url) as store, store.read() as tx:
        found = [tx.workflows.runs.get(id) for id in family]
    assert [(run.status, run.context) for run in found] == [("cancelled", {"error": "no"})] * 3
    assert command("runs", "cancel", family[0], "--cascade").exit_code == 1


def test_cancel_ends_a_run(command: Command, stored: list[str], database_url: str) -> None:
    result = command("runs", "cancel", stored[0], "--reason", "not wanted")
    assert (result.exit_code, result.stdout) == (0, f"Cancelled {stored[0]}.\n")
    with Store.open(database_url) as store, store.read() as tx:
        run = tx.workflows.runs.get(stored[0])
    assert run.status == "cancelled"
    assert run.context is not None
    assert run.context["error"] == "not wanted"
    assert command("runs", "cancel", stored[1], "-q").output == ""
    assert json.loads(command("runs", "cancel", stored[2], "--json").stdout)["status"] == "cancelled"


def test_pause_resume_and_restart(command: Command, stored: list[str], database_url: str) -> None:
    waiting, queued, running, succeeded = stored

    def refused(*args: str) -> str:
        result = command("runs", *args)
        assert (result.exit_code, result.stdout) == (1, "")
        return result.stderr

    assert command("runs", "pause", running).stdout == f"Paused {running}.\n"
    assert "does not run: it is paused" in refused("pause", running)
    assert json.loads(command("runs", "resume", running, "--json").stdout)["status"] == "running"
    assert "is not paused: it is queued" in refused("resume", queued)
    assert "waits at its gate" in refused("resume", waiting)
    assert command("runs", "resume", waiting, "--force", "-q").output == ""
    assert "neither failed nor cancelled: it is succeeded" in refused("restart", succeeded)
    command("runs", "cancel", running)
    assert command("runs", "restart", running).stdout == f"Restarted {running}.\n"
    with Store.open(database_url) as store, store.read() as tx:
        assert [tx.workflows.runs.get(id).status for id in stored] == ["running", "queued", "running", "succeeded"]


def test_retry_puts_a_run_last_in_line(command: Command, stored: list[str], database_url: str) -> None:
    _, queued, running, succeeded = stored
    command("runs", "cancel", running)
    assert command("runs", "ls", "--failure-kind", "cancelled", "-q").stdout == f"{running}\n"
    assert command("runs", "ls", "--failure-kind", "retries", "-q").stdout == ""
    assert command("runs", "retry", running).stdout == f"Queued {running}.\n"
    refused = command("runs", "retry", succeeded)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "neither failed nor cancelled: it is succeeded" in refused.stderr
    with Store.open(database_url) as store, store.read() as tx:
        assert [run.id for run in tx.workflows.runs.list_queued()] == [queued, running]


@pytest.mark.parametrize("group", ["runs", "approvals"])
def test_a_group_alone_prints_its_commands(group: str) -> None:
    result = CliRunner().invoke(main, [group])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == CliRunner().invoke(main, [group, "-h"]).stdout


@pytest.fixture
def today(database_url: str) -> str:
    """A day of executions: two of today, one of two days ago, one that still runs; runs of three statuses."""
    now = datetime.now(UTC).replace(hour=12)
    clock = FrozenClock(now)
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        for status in ("running", "running", "queued", "failed"):
            tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", status=status)
        for age, skill, success in ((0, "triage:plan", True), (0, "evil\x1b[2J", False), (2, "triage:plan", True)):
            clock.set(now - timedelta(days=age))
            done = tx.workflows.executions.start(trigger_type="github", trigger_id="issue/1", skill=skill)
            tx.workflows.executions.finish(
                done.id, success=success, input_tokens=1000, output_tokens=20, cache_read_input_tokens=3, cost_usd=0.25
            )
        clock.set(now)
        tx.workflows.executions.start(trigger_type="cron", trigger_id="cron/1", skill="triage:apply")
    return now.strftime("%Y-%m-%d")


def test_stats_count_runs_and_executions(command: Command, today: str) -> None:
    result = command("runs", "stats")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    head, _, table = result.stdout.partition("\n\n")
    counts = dict(line.split(maxsplit=1) for line in head.splitlines())
    assert counts["runs"] == "4 (queued 1, running 2, failed 1)"
    assert counts["executions"].startswith("4 (today ")  # how many are of today is the local zone's to say
    assert counts["executions"].endswith(", running 1)")
    assert counts["skills"] == "evil\\x1b[2J 1, triage:apply 1, triage:plan 2"
    columns, *days = table.splitlines()
    assert columns.split() == ["DAY", "(UTC)", "TOTAL", "SUCCEEDED", "FAILED", "SKIPPED", "DEFERRED", "RUNNING", "TOKENS", "COST"]
    assert len(days) == 7
    assert days[-1].split() == [today, "3", "1", "1", "0", "0", "1", "2,046", "$0.5000"]
    assert days[-3].split()[1:] == ["1", "1", "0", "0", "0", "0", "1,023", "$0.2500"]
    assert days[0].split()[1:] == ["0", "0", "0", "0", "0", "0", "-", "-"]


def test_stats_of_some_days(command: Command, today: str) -> None:
    assert len(command("runs", "stats", "--days", "2", "-q").stdout.splitlines()) == 3
    assert command("runs", "stats", "--days", "1", "-q").stdout.splitlines()[-1].startswith(today)
    assert command("runs", "stats", "--days", "0").exit_code == 2


def test_stats_json(command: Command, today: str, database_url: str) -> None:
    found = json.loads(command("runs", "stats", "--json", "--days", "3").stdout)
    with Store.open(database_url) as store, store.read() as tx:
        stats, days = tx.workflows.executions.stats(), tx.workflows.executions.daily_stats(3)
    assert found == {
        "runs": {"queued": 1, "running": 2, "paused": 0, "succeeded": 0, "failed": 1, "cancelled": 0},
        "executions": stats.model_dump(mode="json"),
        "days": [day.model_dump(mode="json") for day in days],
    }
    assert [day["total"] for day in found["days"]] == [1, 0, 3]


def test_stats_of_nothing(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    result = command("runs", "stats")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()[:3]] == [["runs", "0"], ["executions", "0"], ["skills", "none"]]
