"""How long work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int | None], object]
"""Called with what is being done, such as a table's name, the steps done and those of the whole work; None where nobody knows."""
