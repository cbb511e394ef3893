"""examples/program.py in a forked process, with an environment and a file for what it says of errors.

example_worker PATH ERRORS ARGUMENT…
"""

import os
import runpy
import sys

os.environ["PATH"], errors, *sys.argv[1:] = sys.argv[1:]
descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(descriptor, 2)
os.close(descriptor)
runpy.run_module("examples.program", run_name="__main__", alter_sys=True)
