"""A program that agents run: statements as a tree, values in frames that hide each other, memories, and what shells wrote."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing

from examples.filled.times import Ids, Scene, Times
from persist import Store

RUN = "20260116-143052-a7b3c9"
_SOURCE = """const topic = "queues"
let draft = ""
parallel:
  session: "Read the forums about {topic}"
  session: "Read the papers about {topic}"
loop until draft is short:
  do shorten(draft)
output report = draft
"""
_SHELL = (
    "INSERT INTO {schema}bindings (run_id, name, kind, value) VALUES ('" + RUN + "', 'note', 'let', 'written by a shell')",
    "UPDATE {schema}bindings SET value = 'somewhat longer than it was' WHERE run_id = '" + RUN + "' AND name = 'draft'",
    "INSERT INTO {schema}bindings (run_id, name, kind, attachment_path) "
    "VALUES ('" + RUN + "', 'sources', 'let', 'attachments/sources.md')",
)


def scenes(store: Store, times: Times, ids: Ids) -> Iterable[Scene]:
    """The run that a shell wrote to, as it went on, and two more."""
    yield _goes_on(store, times, ids)
    yield _others(store, times, ids)


def shells(store: Store, times: Times, ids: Ids) -> None:
    """The beginning of the run, and what a shell writes into it: the log of events refuses statements that are not of persist."""
    times.play([_begins(store, times)])
    if store.path is not None:
        with closing(sqlite3.connect(store.path)) as shell:
            for statement in _SHELL:
                shell.execute(statement.format(schema=""))
            shell.commit()
    elif (schema := store.runtime.dialect.schema) is not None:
        with store.runtime.connections.writer.begin() as connection:
            for statement in _SHELL:
                connection.exec_driver_sql(statement.format(schema=f'"{schema}".'))
    ids["program"] = RUN


def _begins(store: Store, times: Times) -> Scene:
    yield times.ago(minutes=35)
    with store.begin() as tx:
        programs = tx.programs
        programs.runs.create(program_path="survey.prose", program_source=_SOURCE, id=RUN)
        first = programs.executions.begin(RUN, statement_index=1, statement_text='const topic = "queues"').id
        programs.bindings.bind(RUN, "topic", "queues", kind="const", source_statement='const topic = "queues"')
        programs.executions.complete(RUN, first)
        programs.bindings.bind(RUN, "readers", "two", kind="input", summary="How many read")
        programs.bindings.bind(RUN, "draft", "", kind="let", source_statement='let draft = ""')


def _goes_on(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(minutes=28)
    with store.begin() as tx:
        executions, bindings, agents = tx.programs.executions, tx.programs.bindings, tx.programs.agents
        facts = {"parallel_id": "p1", "strategy": "all", "on_fail": "continue", "branches": ["forums", "papers"]}
        block = executions.begin(RUN, statement_index=3, statement_text="parallel:", metadata=facts).id
        branches = {}
        for number, name in enumerate(("forums", "papers")):
            text = f'session: "Read the {name} about {{topic}}"'
            about = {"parallel_id": "p1", "branch": name}
            branches[name] = executions.begin(
                RUN, statement_index=4 + number, statement_text=text, parent_id=block, metadata=about
            ).id
            bindings.bind(RUN, "topic", f"queues in {name}", execution_id=branches[name], summary="hides the const of the run")
            agents.start(RUN, name, resume=False)
            times.later(40)
            bindings.bind(RUN, "result", f"What the {name} say: nine sources.", execution_id=branches[name])
            agents.remember(RUN, name, f"- {name}: nine sources, two of them worth a second look")
            agents.add_segment(RUN, name, prompt=f"Read the {name} about queues.", summary="Nine sources; two disagree.")
        executions.record_retry(RUN, branches["papers"], attempt=1, max_retries=3)
        times.later(30)
        executions.complete(RUN, branches["forums"])
        executions.complete(RUN, branches["papers"])
        executions.complete(RUN, block)
        loop = executions.begin(RUN, statement_index=6, statement_text="loop until draft is short:", metadata={"max": 3}).id
        for iteration in (1, 2):
            executions.set_iteration(RUN, loop, iteration)
            inner = executions.begin(RUN, statement_index=7, statement_text="do shorten(draft)", parent_id=loop).id
            bindings.bind(RUN, "draft", f"The draft of round {iteration}", execution_id=inner, source_statement="let draft")
            times.later(25)
            if iteration == 1:
                executions.complete(RUN, inner)
            else:
                deeper = executions.begin(RUN, statement_index=8, statement_text='session: "Shorten it"', parent_id=inner).id
                bindings.bind(RUN, "limit", "200 words", kind="const", execution_id=deeper)
                anonymous = bindings.next_anonymous(RUN)
                bindings.bind(RUN, anonymous, "A value without a name of its own", execution_id=deeper)
        skipped = executions.begin(RUN, statement_index=9, statement_text="if readers is one:", status="pending").id
        executions.skip(RUN, skipped)
        executions.begin(RUN, statement_index=10, statement_text="output report = draft", status="pending")
        agents.start(RUN, "editor", resume=False, scope="custom")
        agents.remember(RUN, "editor", "Short sentences. No claims without a source.", scope="custom")
        tx.programs.imports.add(
            RUN,
            "research",
            "https://example.com/research.prose",
            inputs_schema={"topic": "text"},
            outputs_schema={"report": "text"},
        )
        tx.programs.subagents.start(RUN, isolation="file", execution_id=deeper, agent="editor")
        ids |= {"program_frame": deeper, "program_branches": branches}


def _others(store: Store, times: Times, ids: Ids) -> Scene:
    """A run that failed, and one that was completed."""
    for id, status, days in (("20260109-080001-c0ffee", "completed", 6), ("20260112-191530-b01dfa", "failed", 4)):
        yield times.ago(days=days)
        with store.begin() as tx:
            programs = tx.programs
            programs.runs.create(program_path="digest.prose", program_source='session: "Sum up the week"\n', id=id)
            frame = programs.executions.begin(id, statement_index=1, statement_text='session: "Sum up the week"').id
            times.later(50)
            if status == "completed":
                programs.bindings.bind(id, "report", "A quiet week: 14 reviews, 61 letters, no outage.", kind="output")
                programs.executions.complete(id, frame)
            else:
                programs.executions.fail(id, frame, "the model answered 529: overloaded")
            programs.runs.finish(id, status)
            ids[f"{status}_program"] = id
