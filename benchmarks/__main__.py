"""`python -m benchmarks [NAME …]` measures and prints tables, `--page` writes docs/benchmarks.md too; it always exits with 0.

`python -m benchmarks before COMMIT` compares the plain verbs of every domain with those of a commit.
"""

import argparse
import sys

from benchmarks.before import ROUNDS, compare
from benchmarks.machine import described
from benchmarks.measure import HEAD
from benchmarks.page import PAGE, PLOT, render
from benchmarks.parts import BY_NAME, PARTS
from benchmarks.running import run_all, server


def main() -> int:
    """Progress is told on standard error."""
    if sys.argv[1:2] == ["before"]:
        return _before(sys.argv[2:])
    options = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure persist; see docs/benchmarks.md.")
    options.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BY_NAME)}; without any, all of them")
    options.add_argument("--quick", action="store_true", help="fewer rounds and smaller sizes; without names, fewer parts")
    options.add_argument("--full", action="store_true", help="the largest sizes of the named parts; takes ten times as long")
    options.add_argument("--page", action="store_true", help="measure everything, and write the page and its pictures")
    given = options.parse_args()
    if unknown := [name for name in given.names if name not in BY_NAME]:
        options.error(f"no such part: {', '.join(unknown)}; there are {', '.join(BY_NAME)}.")
    if given.full and (given.quick or not given.names):
        options.error("--full is for named parts, and not a quick look.")
    if given.page and (given.names or given.quick):
        options.error("--page is for a whole run.")
    parts = [BY_NAME[name] for name in given.names] or [part for part in PARTS if part.quick or not given.quick]
    with server(_tell) as url:
        machine = described(url)
        outcomes = []
        for outcome in run_all(parts, url, quick=given.quick, full=given.full, tell=_tell):
            outcomes.append(outcome)
            print(f"\n## {outcome.part.title}\n\n{HEAD}")
            for row in outcome.rows:
                print(row.markdown())
            sys.stdout.flush()
    print("\n" + "\n".join(machine))
    if given.page:
        from benchmarks.plot import draw
        from website.pictures import write

        PAGE.write_text(render(outcomes, machine), encoding="utf-8")
        draw(outcomes, PLOT)
        write()
        _tell(f"wrote {PAGE.name} and {PLOT.name}")
    return 0


def _before(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(
        prog="python -m benchmarks before", description="Compare plain verbs with those of a commit."
    )
    options.add_argument("commit")
    options.add_argument("--rounds", type=int, default=ROUNDS, help="processes of each of both on each database")
    given = options.parse_args(arguments)
    compare(given.commit, given.rounds, _tell)
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
