"""How long work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], object]
"""Called with what is being done, such as a table's name, the steps done, and those of the whole work."""

OpenProgress = Callable[[str, int, int | None], object]
"""A Progress of work whose end may be unknown: then the whole is None."""
