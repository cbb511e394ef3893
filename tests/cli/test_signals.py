"""`persist signals`, on both databases."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from click.testing import Result

from persist import Store
from persist.testing import FrozenClock

pytestmark = pytest.mark.one_database

Command = Callable[..., Result]


@pytest.fixture
def run_id(database_url: str, clock: FrozenClock) -> str:
    """A run that waits for "paid"."""
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        tx.workflows.runs.create("ship", trigger_id="order/7", current_phase="wait", status="queued")
        lease = tx.workflows.runs.claim("w", lease=timedelta(hours=1))
        assert lease is not None
        tx.workflows.signals.wait(lease, "paid")
    return lease.run_id


def test_a_signal_lets_a_run_go_on(command: Command, run_id: str) -> None:
    assert command("signals", "ls", run_id).stderr == "The run was told nothing.\n"
    assert command("signals", "send", run_id, "other").stdout == f"Sent other; run {run_id} is paused.\n"
    sent = command("signals", "send", run_id, "paid", "--payload", r'{"euros": "5\u001b[2J"}', "--key", "k")
    assert sent.stdout == f"Sent paid; run {run_id} is running.\n"
    again = command("signals", "send", run_id, "paid", "--key", "k", "--json")
    assert json.loads(again.stdout)["payload"] == {"euros": "5\x1b[2J"}
    head, *rows = command("signals", "ls", run_id).stdout.splitlines()
    assert head.split() == ["SEQ", "NAME", "SENT", "(UTC)", "TAKEN", "(UTC)", "PAYLOAD"]
    assert [row.split()[:2] for row in rows] == [["1", "other"], ["2", "paid"]]
    assert "\x1b" not in rows[1]
    assert command("signals", "ls", run_id, "-q").stdout == "other\npaid\n"
    assert [item["seq"] for item in json.loads(command("signals", "ls", run_id, "--json").stdout)["items"]] == [1, 2]
    assert command("signals", "send", run_id, "quiet", "-q").stdout == ""


@pytest.mark.parametrize("payload", ["{", "[" * 100_000, "NaN"])
def test_a_payload_that_is_no_json_is_refused(command: Command, run_id: str, payload: str) -> None:
    refused = command("signals", "send", run_id, "paid", "--payload", payload)
    assert refused.exit_code in (1, 2)
    assert "Traceback" not in refused.output
    assert command("signals", "ls", run_id, "-q").stdout == ""


def test_an_unknown_run(command: Command, database_url: str, run_id: str) -> None:
    assert command("signals", "send", "run_nobody", "paid").exit_code == 1
    assert command("signals", "ls", "run_nobody").exit_code == 1
