"""How many examples Hypothesis tries of a property."""

import os

EXPLORING = os.environ.get("PERSIST_EXPLORE") == "1"


def examples(number: int) -> int:
    """The number, of which every run tries the same; whoever explores tries new ones, and ten times as many."""
    return number * 10 if EXPLORING else number
