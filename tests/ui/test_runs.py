"""The pages of workflow runs."""

from persist import Store
from tests.ui.visitor import Visitor


def made(state: Store, **options: object) -> str:
    with state.begin() as tx:
        return tx.workflows.runs.create("review", trigger_id="pr-1", current_phase="plan", **options).id  # type: ignore[arg-type]  # options of the verb


def test_a_list_says_what_runs_and_json_is_that_of_the_command(state: Store, visitor: Visitor) -> None:
    id = made(state)
    assert "review running plan pr-1" in visitor.get("/runs").main
    (item,) = visitor.json("/runs")["items"]
    assert (item["id"], item["status"]) == (id, "running")


def test_a_missing_run_is_named(visitor: Visitor) -> None:
    answer = visitor.get("/runs/none")
    assert answer.status == 404
    assert "There is no workflow run" in answer.main


def test_a_form_changes_a_run_and_says_so(state: Store, changer: Visitor) -> None:
    id = made(state)
    assert "Cancel" in changer.get(f"/runs/{id}").main
    sent = changer.post(f"/runs/{id}/cancel", back=f"/runs/{id}")
    assert (sent.status, sent.headers["location"]) == (303, f"/runs/{id}")
    assert f"Cancelled the run {id}." in changer.get(f"/runs/{id}").main
    with state.read() as tx:
        assert tx.workflows.runs.get(id).status == "cancelled"
