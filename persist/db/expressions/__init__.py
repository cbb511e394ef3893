"""SQL expressions and clauses that SQLAlchemy does not offer for both databases, rendered for each."""

from collections.abc import Callable
from string import Formatter
from typing import Any, TypeVar

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement

E = TypeVar("E", bound=ClauseElement)


def written_as(**texts: str) -> Callable[[type[E]], type[E]]:
    """Class decorator: the SQL of an element by dialect. {name} in a text stands for the SQL of the element's attribute."""

    def declare(element: type[E]) -> type[E]:
        for dialect, text in texts.items():
            compiles(element, dialect)(_writer(text, [name for _, name, *_ in Formatter().parse(text) if name]))
        return element

    return declare


def _writer(text: str, names: list[str]) -> Callable[..., str]:
    def write(element: ClauseElement, compiler: SQLCompiler, **kw: Any) -> str:
        return text.format(**{name: compiler.process(getattr(element, name), **kw) for name in names})

    return write
