"""docs/benchmarks.md, whole: the text around the figures is here, so that a run writes the same page with other figures."""

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.goals import GOALS
from benchmarks.measure import HEAD, Row
from benchmarks.running import Outcome

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
PLOT = PAGE.with_suffix(".svg")

_TEMPLATE = """\
# Benchmarks

What persist costs beside a program that talks to the database driver itself, and beside other libraries that store sessions of
agents. `make bench` wrote this page: it measures, which takes about twelve minutes, and writes every figure and this text anew.
`make bench-quick` prints a shorter run to the terminal, `make bench ARGS="recording reading"` the parts of that name. No figure
fails a build.

## How to read it

A figure with an `x` is a ratio of two times: 2x is twice as slow as what it is compared with, 0.5x is twice as fast. Ratios carry
over to other machines, microseconds do not. The alternatives of a row take turns within one run, one operation each, in an order
drawn anew every round, so that a slow moment of the machine hits all of them; the figure is the ratio of their medians. *At most*
is the goal. Rows without one are for orientation.

What is written by hand is as good as we can make it: the same rows, and the same durability, which is a transaction with
`BEGIN IMMEDIATE` in a file with a write-ahead log and `synchronous=NORMAL`, or a commit that a Postgres server has synced to its
disk. Its statements are prepared once and keep their connection. It checks nothing.

{machine}

The first row times the call in the middle of this program, 2,000 times:

```python
from persist import Store

with Store.open("sqlite:///answer.db") as store:
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="bench", model={{}})
    with store.record(session.id) as recorder:
        recorder.feed_many([{{"type": "start"}}, {{"type": "text-start", "id": "t"}}])
        recorder.feed({{"type": "text-delta", "id": "t", "delta": "lorem ipsum dolor si"}})     # durable when it returns
```

## Goals

SQLite, unless a row says Postgres. {reached} of {all} are met.

{goals}

{parts}

## At a glance

![Every goal as the share of it that is used up, and the time that other libraries take for the same job]({plot})
"""


def render(outcomes: Sequence[Outcome], machine: Iterable[str]) -> str:
    """The page."""
    found = [row for outcome in outcomes for row in outcome.rows]
    by_key = {row.key: row for row in found if row.key}
    return _TEMPLATE.format(
        machine="\n".join(f"- {line}" for line in machine),
        reached=sum(row.met for row in by_key.values()),
        all=len(GOALS),
        goals="\n".join([HEAD, *(_goal_line(by_key, goal.key) for goal in GOALS)]),
        parts="\n\n".join(section for outcome in outcomes if (section := _section(outcome))),
        plot=PLOT.name,
    )


def _goal_line(by_key: dict[str, Row], key: str) -> str:
    if key in by_key:
        return by_key[key].markdown()
    goal = next(goal for goal in GOALS if goal.key == key)
    return f"| {goal.what} | | {goal.at_most:g}{goal.unit} | not measured | |"


def _section(outcome: Outcome) -> str:
    """What a part measured beside the goals."""
    rows = [row.markdown() for row in outcome.rows if not row.key]
    if not rows and not outcome.failed:
        return ""
    lines = [f"## {outcome.part.title}", "", introduction(outcome.part.name)]
    if rows:
        lines += ["", HEAD, *rows]
    if outcome.failed:
        lines += ["", f"It ended early: {outcome.failed}."]
    return "\n".join(lines)


def introduction(name: str) -> str:
    """The docstring of a part's module, read without importing it: it may need what is not installed."""
    source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""
