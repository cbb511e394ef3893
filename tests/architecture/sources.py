"""The repository as text and as syntax trees, for the rules that no linter has."""

import ast
import gc
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NOT_OURS = {".git", "node_modules", "__pycache__", "build", "dist", "htmlcov"}


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path

    @property
    def name(self) -> str:
        """Its path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        tree = ast.parse(self.text)
        gc.freeze()  # a million nodes stay to the end: looking for garbage among them takes longer than parsing does
        return tree

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree's."""
        return list(ast.walk(self.tree))

    def docstrings(self) -> dict[int, str]:
        """The strings that only document, by their first line: of modules, classes, functions, and of names before them."""
        found = {}
        for node in self.nodes:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                found[node.lineno] = node.value.value
        return found

    def code(self) -> Iterator[tuple[int, str]]:
        """Every token that is neither comment nor docstring, with its line."""
        documenting = self.docstrings()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.STRING and token.start[0] in documenting:
                continue
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                yield token.start[0], token.string

    def comments(self) -> Iterator[tuple[int, str]]:
        """Every comment, with its line."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def sources(*folders: str) -> list[Source]:
    """The Python files below some folders of the repository, by name."""
    found = [source for folder in folders for source in _below(folder)]
    assert found, folders
    return sorted(found, key=lambda source: source.name)


@cache
def _below(folder: str) -> list[Source]:
    """One object for each file, whoever asks: reading and parsing all of them takes seconds."""
    return [Source(path) for path in (ROOT / folder).rglob("*.py") if not set(path.parts) & _NOT_OURS]


def texts() -> Iterator[tuple[str, str]]:
    """Every text file of the repository, by name; what tools leave behind, and hidden folders of theirs, is left out."""
    for top in sorted(ROOT.iterdir()):
        if top.name in _NOT_OURS or top.name.startswith(".venv") or top.name.endswith((".egg-info", "_cache", ".db")):
            continue
        if top.name.startswith(".") and top.name not in (".ci", ".github", ".gitignore", ".pre-commit-config.yaml"):
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and not set(path.relative_to(ROOT).parts) & _NOT_OURS:
                content = path.read_bytes()
                if b"\x00" not in content[:1024]:
                    yield path.relative_to(ROOT).as_posix(), content.decode()
