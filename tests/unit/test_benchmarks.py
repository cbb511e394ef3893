"""The benchmarks themselves, without a clock: turns, rows, goals, and the page that is made of them."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict

from benchmarks import before, plain_verbs
from benchmarks.goals import GOALS, reached
from benchmarks.measure import MIB, Row, in_turn, interleaved, interleaved_async, most_memory
from benchmarks.page import PAGE, PLOT, render
from benchmarks.parts import PARTS, Part
from benchmarks.running import Outcome, run, take
from persist import Store
from tests.architecture.sources import ROOT
from tests.cases import each

ENDLESS = float("inf")


def silent(_: str) -> None:
    """Nobody listens."""


def page(*outcomes: Outcome) -> str:
    """With a machine."""
    return render(outcomes, ["Machine: a box with 2 cores", "SQLite 3"])


def made_up() -> list[Outcome]:
    """Every goal, just met, and a row beside them in each part."""
    whole = [Outcome(part, [Row(f"beside {part.name}", 1.5, ENDLESS, "3 µs vs 2 µs")]) for part in PARTS]
    whole[0].rows += [reached(goal.key, goal.at_most, f"detail of {goal.key}") for goal in reversed(GOALS)]
    return whole


def test_every_alternative_has_one_turn_a_round_in_an_order_that_changes() -> None:
    turns = list(in_turn(["a", "b", "c"], 50))
    rounds = [tuple(turns[first : first + 3]) for first in range(0, len(turns), 3)]
    assert {frozenset(one) for one in rounds} == {frozenset("abc")}
    assert len(set(rounds)) == 6
    assert turns == list(in_turn(["a", "b", "c"], 50))


def test_an_operation_may_measure_itself() -> None:
    times = iter([9.0, 1.0, 2.0, 3.0])
    assert interleaved({"own": lambda: next(times)}, rounds=3, warm=1) == {"own": [1.0, 2.0, 3.0]}


def test_operations_on_an_event_loop_take_turns_too() -> None:
    calls: list[str] = []

    async def one() -> None:
        calls.append("one")
        await asyncio.sleep(0)

    async def own() -> float:
        calls.append("own")
        return 4.0

    seconds = asyncio.run(interleaved_async({"one": one, "own": own}, rounds=5, warm=1))
    assert Counter(calls) == {"one": 6, "own": 6}
    assert (len(seconds["one"]), seconds["own"]) == (5, [4.0] * 5)


def test_memory_is_the_most_that_lives_at_once() -> None:
    kept = bytearray(4 * MIB)

    def run() -> None:
        for _ in range(3):
            bytearray(10 * MIB)

    assert 10 <= most_memory(run) < 11
    assert len(kept) == 4 * MIB


@each(
    ("row", "line"),
    [
        (Row("save", 0.256, 0.35, "3 µs vs 12 µs"), "| save | 0.26x | 0.35x | met | 3 µs vs 12 µs |"),
        (Row("save", 0.35, 0.35, ""), "| save | 0.35x | 0.35x | met |  |"),
        (Row("open", 12.34, 10.0, "", " ms"), "| open | 12.3 ms | 10 ms | **missed** |  |"),
        (Row("beside", 1234.5, ENDLESS, "so"), "| beside | 1,234x | | | so |"),
    ],
    ids=["met", "met exactly", "missed", "no goal"],
)
def test_a_row_says_what_was_measured_and_whether_that_is_enough(row: Row, line: str) -> None:
    assert row.markdown() == line


def test_a_row_comes_back_from_the_process_that_measured_it() -> None:
    outcome, told = Outcome(PARTS[0]), list[str]()
    row = Row("beside", 1.5, ENDLESS, "µs", " ms", "stream")
    take(outcome, json.dumps(asdict(row)), told.append)
    assert (outcome.rows, outcome.failed) == ([row], "")
    assert len(told) == 1
    take(outcome, '{"failed": "OSError"}', told.append)
    assert (outcome.rows, outcome.failed) == ([row], "OSError")


def test_a_part_that_breaks_leaves_the_others_alone() -> None:
    outcome = run(Part("nothing", "Nothing", postgres=False), None, quick=True, tell=silent)
    assert (outcome.rows, outcome.failed) == ([], "exit code 2")


def test_a_name_that_is_no_part_is_refused_with_those_that_are() -> None:
    asked = subprocess.run([sys.executable, "-m", "benchmarks", "nothing"], cwd=ROOT, capture_output=True, text=True)
    assert asked.returncode == 2
    assert "no such part: nothing" in asked.stderr
    assert all(part.name in asked.stderr for part in PARTS)


def test_every_plain_verb_can_be_called_again_and_again() -> None:
    with Store.open("sqlite:///:memory:") as store:
        names = []
        for name, call in plain_verbs.verbs(store):
            call()
            call()
            names.append(name)
        domains = {name.partition(".")[0] for name in names if "." in name}
    assert len(set(names)) == len(names) == 38
    assert domains >= {"chat", "workflows", "telemetry", "usage", "conversations", "messaging", "programs", "blobs"}


def test_a_verb_is_compared_by_the_least_figure_that_each_commit_has() -> None:
    old = before.least([{"get": 4e-6, "list": 9e-6}, {"get": 2e-6}])
    new = before.least([{"get": 3e-6, "made": 5e-6}, {"get": 8e-6, "made": 4e-6}])
    found = before.lines(old, new, {"get": 3}, {"get": 2, "made": 2})
    assert found == ["| get | 2 µs | 3 µs | 1.50x | 3 -> 2 |", "| made |  | 4 µs | new | 2 |"]
    assert before.lines({"get": 1e-6}, {}, {}, {}) == ["| get | 1 µs |  | gone |  |"]


def test_goals_come_first_and_in_their_order() -> None:
    text = page(*made_up())
    places = [text.index(f"| detail of {goal.key} |") for goal in GOALS]
    assert places == sorted(places)
    assert places[-1] < text.index("| beside recording |")
    assert f"{len(GOALS)} of {len(GOALS)} are met." in text
    assert "missed" not in text


def test_a_goal_that_nobody_measured_stays_on_the_page() -> None:
    text = page(Outcome(PARTS[0], [reached(GOALS[0].key, GOALS[0].at_most * 2, "slow")]))
    assert text.count("| not measured |") == len(GOALS) - 1
    assert f"0 of {len(GOALS)} are met." in text
    assert "**missed** | slow |" in text


def test_the_page_in_the_documentation_shows_these_goals() -> None:
    kept = PAGE.read_text(encoding="utf-8")
    table, rest = kept.partition("\n## Goals\n")[2].split("\n## ", 1)
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")]
    assert rows == ["| what", *(f"| {goal.what}" for goal in GOALS)]
    assert [goal.what for goal in GOALS if f"\n| {goal.what} |" in rest] == []
    assert f" {table.count('| met |')} of {len(GOALS)} are met." in table
    assert (PAGE.parent / PLOT.name).read_text(encoding="utf-8").startswith("<?xml")
