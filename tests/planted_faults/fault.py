"""A fault that is planted: a line of persist/ and what it becomes, and the tests that concern each domain.

A fault names no file: its line is looked for in the folder `inside`, so that code may move from file to file. A line that is
reworded is put in here anew; `python -m tests.planted_faults --check` names those that are not found, or found twice.
"""

from typing import NamedTuple


class Fault(NamedTuple):
    """`was`, which stands once in persist/`inside`, becomes `becomes`; `tests` are those that concern it."""

    name: str
    kind: str
    inside: str
    was: str
    becomes: str
    tests: tuple[str, ...]


CHAT = ("tests/contract/chat",)
WORKFLOWS = ("tests/contract/workflows", "tests/unit/workflows")
CONVERSATIONS = ("tests/contract/conversations",)
USAGE = ("tests/contract/usage", "tests/unit")
EVENTS = ("tests/contract/events", "tests/events")
TELEMETRY = ("tests/contract/telemetry",)
MESSAGING = ("tests/contract/messaging",)
PROGRAMS = ("tests/contract/programs", "tests/unit/programs")
CHECKPOINTS = ("tests/contract/checkpoints",)
HISTORIES = ("tests/contract/histories",)
VALUES = ("tests/contract/values", "tests/unit", "tests/contract/chat")
PRUNING = ("tests/maintenance/test_prune_rules.py", "tests/maintenance/test_prune_counts.py", "tests/maintenance/test_pruning.py")
ERASING = (
    "tests/maintenance/test_erasing_ways.py",
    "tests/maintenance/test_erasing_rules.py",
    "tests/maintenance/test_erasing.py",
)
