"""Which faces of a store a test runs through, where it is not both."""

import pytest

on_one_face = pytest.mark.parametrize("face", ["sync"])
"""For thousands of rows and random histories: AsyncStore runs the same verb in a thread, and tests beside these go through it."""
