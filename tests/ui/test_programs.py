"""The pages of runs of programs."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from persist import Store
from persist.programs import create_run_file
from persist.testing import FrozenClock
from tests.programs.raw_rows import put
from tests.ui.visitor import Visitor

EVIL = "<script>alert(1)</script>\x1b[2J"


def made(state: Store, clock: FrozenClock, id: str = "r1") -> str:
    """A run in the middle of a loop, in which values hide others."""
    with state.begin() as tx:
        programs = tx.programs
        programs.runs.create(program_path="survey.prose", program_source="let topic = 1", id=id)
        loop = programs.executions.begin(
            id, statement_index=1, statement_text="loop (max: 3):", metadata={"loop_id": "l1", "max_iterations": 3}
        )
        programs.executions.set_iteration(id, loop.id, 2)
        step = programs.executions.begin(id, statement_index=2, statement_text=f"session {EVIL}", parent_id=loop.id)
        clock.advance(seconds=90)
        programs.executions.fail(id, step.id, "nobody answered")
        for frame, value in ((None, "of all"), (loop.id, "of the loop"), (step.id, "of the step")):
            programs.bindings.bind(id, "topic", value, execution_id=frame)
        programs.bindings.bind(id, "lonely", EVIL, kind="const", execution_id=step.id)
        programs.agents.remember(id, "editor", "Short sentences.")
        programs.agents.add_segment(id, "editor", prompt="Shorten it.", summary="It is shorter.")
        programs.imports.add(id, "research", "https://example.com/research.prose")
    return id


def test_runs_are_listed_filtered_and_paged(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    assert "A virtual machine makes them with tx.programs.runs.create" in visitor.get("/programs").main
    for number in range(3):
        made(state, clock, f"r{number}")
        clock.advance(seconds=60)
    state.programs.runs.finish("r0", "completed")
    main = visitor.get("/programs").main
    assert main.index("survey.prose running r2") < main.index("survey.prose completed r0")
    assert "r0" not in visitor.get("/programs", status="running").main
    page = visitor.json("/programs", limit=2)
    assert [one["id"] for one in page["items"]] == ["r2", "r1"]
    assert "program_source" not in page["items"][0]
    assert "r0" in visitor.get("/programs", limit=2, after=page["cursor"]).main
    assert visitor.get("/programs", status="gone").status == 400


def test_a_run_is_shown_as_a_tree_with_where_it_would_resume(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    page = visitor.get(f"/programs/{made(state, clock)}")
    loop, step = (one.id for one in state.programs.executions.list("r1"))
    assert f"{loop} loop (max: 3):" in page.main
    assert f"level 2, below {loop}: session" in page.main
    assert "nobody answered" in page.main
    assert "failed 1 min ago 1 min 30 s" in page.main
    assert "The loop l1 : iteration 2 of at most 3" in page.main
    assert f'href="#statement-{loop}"' in page.text
    assert f'id="statement-{step}"' in page.text
    assert "let topic = 1" in page.main
    found = visitor.json("/programs/r1")
    assert (found["run"]["id"], [one["id"] for one in found["executions"]]) == ("r1", [loop, step])


def test_values_say_what_they_shadow(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    id = made(state, clock)
    loop, step = (one.id for one in state.programs.executions.list(id))
    main = visitor.get(f"/programs/{id}").main
    assert "Of the program topic shadowed in 1 statement let of all" in main
    assert "topic shadows that of the program shadowed in 1 statement let of the loop" in main
    assert f"topic shadows that of statement {loop} let of the step" in main
    assert "of the step" in visitor.get(f"/programs/{id}/values/topic", frame=step).main
    inherited = visitor.get(f"/programs/{id}/values/topic").main
    assert ("of all" in inherited, "of the step" in inherited) == (True, False)
    assert visitor.json(f"/programs/{id}/values/lonely", frame=step)["kind"] == "const"
    assert visitor.get(f"/programs/{id}/values/lonely").status == 404
    assert visitor.get(f"/programs/{id}/values/topic", frame="x").status == 400


def test_memories_of_agents_are_shown_and_what_they_were_asked(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    id = made(state, clock)
    page = visitor.get(f"/programs/{id}").main
    assert ("Short sentences." in page, "Shorten it." in page) == (True, False)
    asked = visitor.get(f"/programs/{id}", agent="editor").main
    assert "Shorten it. It came to: It is shorter." in asked


def test_many_statements_are_paged(state: Store, visitor: Visitor) -> None:
    with state.begin() as tx:
        run = tx.programs.runs.create(id="long").id
        for number in range(203):
            tx.programs.executions.begin(run, statement_index=number, statement_text=f"statement {number}.", status="pending")
    first = visitor.get("/programs/long").main
    assert ("statement 199." in first, "statement 200." in first, "next statements" in first) == (True, False, True)
    rest = visitor.get("/programs/long", None, **{"from": "200"}).main
    assert ("statement 202." in rest, "first statements" in rest) == (True, True)
    assert visitor.get("/programs/long", None, **{"from": "1000"}).status == 400


def test_hostile_text_is_shown_and_not_run(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    id = made(state, clock, f"r/{EVIL}")
    segment = "r%252F%3Cscript%3Ealert%281%29%3C%252Fscript%3E%1B%5B2J"
    (address,) = {part.split('"')[0] for part in visitor.get("/programs").text.split('href="/programs/')[1:]}
    assert address == segment
    page = visitor.get(f"/programs/{segment}")
    assert (page.status, "<script>alert" in page.text, "\x1b" in page.text) == (200, False, False)
    assert visitor.json(f"/programs/{segment}")["run"]["id"] == id


def test_a_missing_run_is_named(visitor: Visitor) -> None:
    answer = visitor.get("/programs/none")
    assert (answer.status, "There is no program run" in answer.main) == (404, True)


@pytest.mark.one_database
def test_a_file_of_a_run_shows_attachments_and_what_a_shell_wrote(
    visit: Callable[..., Visitor], tmp_path: Path, clock: FrozenClock
) -> None:
    with create_run_file(tmp_path, program_source="x", clock=clock) as store:
        id = str(store.run_id)
        with store.begin() as tx:
            tx.programs.bindings.bind(id, "large", "more than a row holds, " * 8000, summary="In short.")
        raw = sqlite3.connect(str(store.path))
        with raw:
            raw.execute("INSERT INTO bindings (name, kind, value) VALUES ('note', 'let', 'by a shell')")
            raw.execute("UPDATE run SET status = 'odd'")
        put(raw, "gone", "attachments/gone.md")
        raw.commit()
        raw.close()
        visitor = visit(store)
        page = visitor.get(f"/programs/{id}").main
        assert "In short." in page
        assert "attachments/large__" in page
        assert "it was inserted by a raw writer" in page
        assert "status not ours" in page
        assert "attachment missing" in page
        value = visitor.get(f"/programs/{id}/values/large").main
        assert ("more than a row holds" in value, "There is more" in value) == (True, True)
        assert "gone.md" in visitor.get(f"/programs/{id}/values/gone").main
