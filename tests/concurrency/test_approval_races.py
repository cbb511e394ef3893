"""Many people answer one gate: exactly one answer counts, the others are told so, and the run agrees with it."""

from collections.abc import Callable, Sequence

import pytest

from persist import Store
from persist.errors import Conflict, TransitionError
from persist.workflows.schemas import Approval, WorkflowRun
from tests.at_once import together
from tests.contract.workflows.making import gate_of, make_run, pause, paused, run_of

RACERS = 8
ANSWERS = ("resume", "fail", "respond", "reply")


def answer(store: Store, verb: str, gate: str, name: str) -> str:
    """Answer one gate -> "won", "False" or "Conflict"."""
    try:
        with store.begin() as tx:
            verbs = tx.workflows.approvals
            if verb == "resume":
                verbs.resolve_and_resume(gate, by=name, response=name, scratch={"winner": name})
            elif verb == "fail":
                verbs.resolve_and_fail(gate, by=name, reason=name)
            elif verb == "respond":
                return "won" if verbs.respond(gate, approved=False, by=name, response=name) else "False"
            else:
                return "won" if verbs.resolve_reply(gate, by=name, response=name) else "False"
    except Conflict:
        return "Conflict"
    return "won"


def verb_of(number: int, round: int) -> str:
    """Every racer uses every verb, and in every round all verbs race."""
    return ANSWERS[(number + round) % len(ANSWERS)]


def agree(run: WorkflowRun, gate: Approval, winner: str, verb: str) -> None:
    """What is stored of the gate and of its run is what the winner said, and nothing of the others."""
    assert (gate.responded_by, gate.response) == (winner, winner)
    assert gate.status == ("approved" if verb in ("resume", "reply") else "rejected")
    status, context, scratch = {
        "resume": ("running", None, {"winner": winner}),
        "fail": ("failed", {"error": f"Rejected: {winner}"}, None),
    }.get(verb, ("paused", None, None))
    assert (run.status, run.context, run.scratch) == (status, context, scratch)
    assert (run.finished_at is not None) == (verb == "fail")


def judge(store: Store, run_id: str, gate_id: str, round: int, outcomes: Sequence[str]) -> None:
    """One racer won, by whatever verb, and each other one lost as its verb says."""
    assert outcomes.count("won") == 1
    for number, outcome in enumerate(outcomes):
        expected = "Conflict" if verb_of(number, round) in ("resume", "fail") else "False"
        assert outcome in ("won", expected)
    winner = outcomes.index("won")
    agree(run_of(store, run_id), gate_of(store, gate_id), str(winner), verb_of(winner, round))


@pytest.mark.parametrize("round", range(8))
def test_of_many_threads_one_answers_a_gate(store: Store, round: int) -> None:
    run, gate = paused(store, kind="reply")
    outcomes = together([lambda n=n: answer(store, verb_of(n, round), gate, str(n)) for n in range(RACERS)])  # type: ignore[misc]  # a default that binds the loop variable
    judge(store, run, gate, round, outcomes)


@pytest.mark.parametrize("verbs", [("resume", "fail"), ("fail", "fail"), ("resume", "resume"), ("resume", "respond")])
def test_of_two_stores_one_answers_each_gate(open_store: Callable[..., Store], verbs: tuple[str, str]) -> None:
    """Two handles on one database, which share no lock."""
    stores = [open_store(), open_store()]
    gates = [paused(stores[0]) for _ in range(12)]

    def race(number: int) -> list[str]:
        return [answer(stores[number], verbs[number], gate, str(number)) for _, gate in gates]

    for (run, gate), outcomes in zip(gates, zip(*together([lambda: race(0), lambda: race(1)]), strict=True), strict=True):
        assert sorted(outcomes) in (["Conflict", "won"], ["False", "won"])
        winner = outcomes.index("won")
        agree(run_of(stores[0], run), gate_of(stores[0], gate), str(winner), verbs[winner])


def test_of_many_pauses_one_opens_its_gate(store: Store) -> None:
    run = make_run(store)

    def wait(number: int) -> bool:
        try:
            pause(store, run.id, gate=f"g{number}", marker=(f"m{number}", None), scratch={"asked": number})
        except TransitionError:
            return False
        return True

    results = together([lambda number=number: wait(number) for number in range(RACERS)])  # type: ignore[misc]  # a default that binds the loop variable
    assert sum(results) == 1
    winner, after = results.index(True), run_of(store, run.id)
    assert (after.status, after.current_phase, after.scratch) == ("paused", f"m{winner}", {"asked": winner})
    assert [item["phase"] for item in after.phase_history] == [f"m{winner}"]
    with store.read() as tx:
        assert [gate.gate for gate in tx.workflows.approvals.list_for_run(run.id)] == [f"g{winner}"]


def test_two_gates_of_one_run_resume_it_once_both_are_approved(store: Store) -> None:
    run, first = paused(store)
    with store.begin() as tx:
        second = tx.workflows.approvals.request(run, gate="second", summary="s").id

    def resume(gate: str) -> bool:
        try:
            return answer(store, "resume", gate, gate) == "won"
        except TransitionError:
            return False

    gates = [first, second]
    results = together([lambda gate=gate: resume(gate) for gate in gates])  # type: ignore[misc]  # a default that binds the loop variable
    assert results == [True, True]
    after = run_of(store, run)
    assert after.status == "running"
    assert after.scratch is not None
    assert after.scratch["winner"] in gates
    assert [gate_of(store, gate).status for gate in gates] == ["approved", "approved"]


@pytest.mark.parametrize("round", range(4))
def test_a_cancelled_run_stays_so_whoever_answers_its_gate(store: Store, round: int) -> None:
    run, gate = paused(store)

    def resume() -> bool:
        try:
            return answer(store, "resume", gate, "maria") == "won"
        except TransitionError:
            return False

    def cancel() -> bool:
        with store.begin() as tx:
            return tx.workflows.runs.cancel(run, reason=f"round {round}")

    resumed, cancelled = together([resume, cancel])
    assert cancelled
    after = run_of(store, run)
    assert (after.status, after.context) == ("cancelled", {"error": f"round {round}"})
    assert after.scratch == ({"winner": "maria"} if resumed else None)
    assert gate_of(store, gate).status == ("approved" if resumed else "rejected")
