"""Plant faults one after the other and say which of them the tests find.

    python -m tests.planted_faults --check              whether the line of every fault is there: a second
    python -m tests.planted_faults                      each fault under the tests that concern it
    python -m tests.planted_faults workflows "wrong f"  those whose name, kind or folder has one of these words
    python -m tests.planted_faults --lane               each fault under all of `make test` but frameworks and the browser
    python -m tests.planted_faults -- --every-way       with these options of pytest

A fault is found if a test fails with it, or does not end, that passes without it. The code is 1 if one is missed.
"""

import argparse
import ast
import sys
import tempfile
from pathlib import Path

from tests.planted_faults import pages, state, work
from tests.planted_faults.planting import Copy, NotPlantedError, place_of

FAULTS = (*work.FAULTS, *state.FAULTS, *pages.FAULTS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted_faults", description="Plant faults and look for them.")
    parser.add_argument("words", nargs="*", help="only faults with one of these words in name, kind or folder")
    parser.add_argument("--check", action="store_true", help="only look for the lines of the faults")
    parser.add_argument("--lane", action="store_true", help="all tests, instead of those that concern the fault")
    own, options = _split(sys.argv[1:])
    given = parser.parse_args(own)
    faults = [
        fault
        for fault in FAULTS
        if not given.words or any(word in f"{fault.name} {fault.kind} {fault.inside}" for word in given.words)
    ]
    lost = []
    for fault in faults:
        try:
            ast.parse(place_of(fault).read_text(encoding="utf-8").replace(fault.was, fault.becomes))
        except (NotPlantedError, SyntaxError) as error:
            lost.append(f"{fault.name}: {error}")
    if lost or given.check:
        print("\n".join(lost) or f"{len(faults)} faults can be planted")
        return bool(lost)
    missed = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Copy(Path(folder))
        for number, fault in enumerate(faults, 1):
            tests, chosen = (["tests"], ["--lane", *options]) if given.lane else (fault.tests, options)
            verdict = copy.judge(fault, chosen, tests)
            missed += not verdict.found
            word = "found" if verdict.found else "MISSED"
            print(f"{number}/{len(faults)} {word}: {fault.name} [{fault.kind}] ({verdict.counts})", flush=True)
            for test in verdict.by:
                print(f"    {test}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults were found")
    return bool(missed)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is before `--`, which is ours, and what is behind it, which is pytest's."""
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


sys.exit(main())
