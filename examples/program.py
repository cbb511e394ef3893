"""A program with a parallel block, a loop and a subagent that writes through sqlite3; it can be killed at any moment.

    python examples/program.py --crash-at loop    # runs, and dies of SIGKILL in the loop
    python examples/program.py                    # finds the run, does not repeat what is done, and ends it
    persist programs show RUN                     # what became of it

    parallel (on-fail: "ignore"):
      survey = session "Survey the field"         # in this process, through a handle
      review = session "Review the survey"        # another process, through the sqlite3 command line
      rumour = session "Ask around"               # fails
    loop until **good enough** (max: 3):
      let draft = session "Improve the draft"

What a session did is stored before its statement is completed, so it is never lost; if the process dies in between, the
session runs again and binds the same name.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    from persist import Store
    from persist.programs import create_run_file, instructions_for_subagent, join, list_run_files, open_run_file, subagent
    from persist.programs.schemas import SETTLED, ExecutionStatus, ProgramExecution
    from persist.programs.subagents.instructions import VALUE
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install .") from None

SOURCE = (__doc__ or "").split("\n\n")[2]
STEPS = ("survey", "review", "rumour", "join", "loop", "end")
Crash = Callable[[str], None]


class Machine:
    """Executes the statements of one run; those that are done already are left alone."""

    def __init__(self, store: Store, run: str, crash: Crash) -> None:
        self.store, self.run, self.crash = store, run, crash

    def statement(self, index: int, text: str, *, parent: int | None = None, facts: Any = None) -> ProgramExecution:
        """The execution of a statement: as an earlier process left it, or begun now."""
        with self.store.begin() as tx:
            for known in tx.programs.executions.list(self.run):
                if (known.statement_index, known.parent_id) == (index, parent):
                    return known
            return tx.programs.executions.begin(
                self.run, statement_index=index, statement_text=text, parent_id=parent, metadata=facts
            )

    def end(self, execution: ProgramExecution, error: str | None = None) -> None:
        with self.store.begin() as tx:
            if error is None:
                tx.programs.executions.complete(self.run, execution.id)
            else:
                tx.programs.executions.fail(self.run, execution.id, error)

    def parallel(self) -> None:
        facts = {"parallel_id": "p1", "strategy": "all", "on_fail": "ignore", "branches": list(SESSIONS)}
        block = self.statement(1, "parallel:", facts=facts)
        for index, (name, session) in enumerate(SESSIONS.items(), start=2):
            branch = self.statement(index, name, parent=block.id, facts={"parallel_id": "p1", "branch": name})
            if branch.status in SETTLED:
                print(f"{name}: {branch.status} already")
                continue
            error = session(self, name, branch.id)
            self.crash(name)
            self.end(branch, error)
            print(f"{name}: {'completed' if error is None else f'failed, {error}'}")
        with self.store.read() as tx:
            states = tx.programs.executions.branches(self.run, "p1")
        joined = join("all", None, "ignore", states)
        self.crash("join")
        print(f"parallel: {joined.outcome}, failed: {', '.join(joined.failed)}")
        if block.status == ExecutionStatus.EXECUTING:
            self.end(block)

    def loop(self) -> None:
        facts = {"loop_id": "l1", "max_iterations": 3, "current_iteration": 0}
        loop = self.statement(10, "loop until **good enough** (max: 3):", facts=facts)
        for iteration in range(loop.metadata["current_iteration"] + 1, 4):
            with self.store.begin() as tx:  # the draft and the iteration that made it, or neither
                tx.programs.bindings.bind(self.run, "draft", f"draft {iteration}", execution_id=loop.id)
                tx.programs.executions.set_iteration(self.run, loop.id, iteration)
            print(f"loop: iteration {iteration}")
            if iteration == 2:
                self.crash("loop")
        if loop.status == ExecutionStatus.EXECUTING:
            self.end(loop)


def in_process(machine: Machine, name: str, frame: int) -> str | None:
    """A subagent in this process: all it has is its handle."""
    handle = subagent(machine.store, machine.run)
    handle.bindings.bind(name, "Three approaches are known.", source_statement=f"{name} = session …")
    return None


def by_command_line(machine: Machine, name: str, frame: int) -> str | None:
    """A subagent elsewhere: it reads its instructions, and types the first command with its output filled in."""
    told = instructions_for_subagent(machine.store, machine.run, binding=name)
    first = told[told.index("sqlite3 ") :].split("\n\n")[0]
    command = first.replace(VALUE, "It''s thorough; `costs` nothing.")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    return done.stderr.strip() or None


def failing(machine: Machine, name: str, frame: int) -> str | None:
    return "nobody knows anything"


SESSIONS: dict[str, Callable[[Machine, str, int], str | None]] = {
    "survey": in_process,
    "review": by_command_line,
    "rumour": failing,
}


def unfinished(root: Path) -> Store | None:
    """The newest run below `root` that has not ended."""
    for path in reversed(list_run_files(root)):
        store = open_run_file(path)
        with store.read() as tx:
            running = tx.programs.runs.get(str(store.run_id)).status == "running"
        if running:
            return store
        store.close()
    return None


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--root", type=Path, default=Path(), help="the project's folder")
    options.add_argument("--crash-at", choices=STEPS, help="die there")
    given = options.parse_args()

    def crash(step: str) -> None:
        if given.crash_at == step:
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    found = unfinished(given.root)
    with found or create_run_file(given.root, program_source=SOURCE) as store:
        run = str(store.run_id)
        print(f"{'resuming' if found else 'starting'} {run}")
        machine = Machine(store, run, crash)
        machine.parallel()
        machine.loop()
        crash("end")
        with store.begin() as tx:
            values = {binding.name: binding.value for binding in tx.programs.bindings.list(run)}
            tx.programs.runs.finish(run, "completed")
        print("\n".join(f"{name} = {value}" for name, value in sorted(values.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
