"""A process that runs a program several times, each time in a child of its own, which may die, and tells how each run ended.

    python -m tests.integrations.forked_runs examples/one_store.py "URL --crash-after 2" "URL"

What the program imports is loaded once.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    program = sys.argv[1]
    runpy.run_path(program)
    for line in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            sys.argv = [program, *line.split()]
            runpy.run_path(program, run_name="__main__")
            sys.stdout.flush()
            os._exit(0)
        print(f"ended by {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)
