"""The reference: a page for every public name, the command line, settings, errors and tables, made from the source."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import persist
from persist import Store
from persist import errors as persist_errors
from persist.cli.root import COMMANDS, main
from persist.db.transactions.repository import Repository
from persist.domains import packages
from persist.schema.metadata import domain_of, metadata
from persist.settings import Settings
from website.erd import drawing

ROOT = Path(__file__).resolve().parents[1]
DOMAINS = {
    "chat": "chat.md",
    "workflows": "workflows.md",
    "conversations": "conversations.md",
    "programs": "programs.md",
    "telemetry": "telemetry.md",
    "usage": "usage.md",
    "checkpoints": "integrations.md",
    "histories": "integrations.md",
    "transcripts": "integrations.md",
    "app_sessions": "integrations.md",
    "agent_tasks": "integrations.md",
    "replay_streams": "integrations.md",
    "blobs": "blobs.md",
    "messaging": "messaging.md",
    "events": "events.md",
}
"""Each domain, and the page of docs/ that explains it."""

INTEGRATIONS = {
    "openai_agents": "OpenAI Agents",
    "langgraph": "LangGraph",
    "pydantic_ai": "Pydantic AI",
    "claude_agent_sdk": "Claude Agent SDK",
    "google_adk": "Google ADK",
    "mcp": "MCP",
    "a2a": "A2A",
}
PACKAGES = (
    "persist.workflows",
    "persist.programs",
    "persist.telemetry",
    "persist.conversations",
    "persist.blobs",
    "persist.events",
)
"""Packages of domains that offer names beside their verbs."""

_FACES = (
    "Store",
    "AsyncStore",
    "Transaction",
    "AsyncTransaction",
    "Recorder",
    "AsyncRecorder",
    "Tenants",
    "AsyncTenants",
    "Page",
)
_ERRORS = "errors.md"


def index() -> str:
    """What there is."""
    rows = [
        ("[Stores](store.md)", "`Store`, `AsyncStore`, transactions, recorders, tenants, and the names of `persist`"),
        ("[Verbs](domains.md)", "`tx.<domain>.<aggregate>.<verb>`, with every parameter and value"),
        ("[Maintenance](maintenance.md)", "backups, copies, pruning, erasing, the doctor; session logs; `persist.testing`"),
        ("[Integrations](integrations.md)", "classes that take the place of a framework's own"),
        (f"[Errors]({_ERRORS})", "the tree, the fields, and what to do about each"),
        ("[Settings](settings.md)", "`PERSIST_*` and arguments of `Store.open`"),
        ("[Command line](command-line.md)", "every command with its options"),
        ("[Tables](tables.md)", "every column, with a picture for each domain"),
        ("[Round trips](../round-trips.md)", "how often each verb waits for an answer of Postgres"),
    ]
    return "# Reference\n\nMade from the source when the site is built.\n\n| | |\n|---|---|\n" + "".join(
        f"| {name} | {what} |\n" for name, what in rows
    )


def store() -> str:
    """Every name of `persist` but its errors."""
    lines = ["# Stores", "", "Import these names from `persist`. Its errors are on [a page of their own](errors.md).", ""]
    for name in sorted(persist.__all__, key=lambda name: (_FACES.index(name) if name in _FACES else len(_FACES), name)):
        found = getattr(persist, name)
        if not (inspect.isclass(found) and issubclass(found, persist.PersistError)) and found is not Settings:
            lines += _documented(found, inherited=name.startswith(("Async", "Tenants")), named=name)
    return "\n".join(lines)


def domains_page() -> str:
    """The domains, and the aggregates of each."""
    lines = [
        "# Verbs",
        "",
        "Of a store each verb is a transaction of its own: `store.chat.sessions.get(id)`. In a block it is part of that one:",
    ]
    lines += [
        "`tx.chat.sessions.get(id)`. Both faces have the same verbs; those of an `AsyncStore` are awaited.",
        "",
        "| domain | verbs of |",
        "|---|---|",
    ]
    for name in DOMAINS:
        lines.append(f"| [{name}]({name}.md) | {', '.join(f'`{path}`' for path, _ in _aggregates(name))} |")
    return "\n".join(lines)


def domain(name: str) -> str:
    """The verbs of a domain, its values, and what its package offers."""
    lines = [f"# {name}", "", f"[What it is for](../{DOMAINS[name]}), [its tables](tables-{name}.md)."]
    for path, kind in _aggregates(name):
        lines += ["", f"## tx.{path}", "", *_documented(kind, heading=False, inherited=True)]
    schemas = import_module(f"{packages()[name]}.schemas")
    lines += ["", "## Values", ""]
    for value, found in vars(schemas).items():
        if inspect.isclass(found) and found.__module__ == schemas.__name__ and not value.startswith("_"):
            lines += _documented(found, named=_within(value, found))
    package = import_module(packages()[name])
    if offered := getattr(package, "__all__", ()):
        lines += ["", f"## {package.__name__}", ""]
        for one in offered:
            lines += _documented(getattr(package, one))
    return "\n".join(lines)


def maintenance() -> str:
    """Functions that work on whole stores, and what belongs to no domain."""
    lines = ["# Maintenance, session logs, testing"]
    for name in ("persist.maintenance", "persist.sessionlog"):
        package = import_module(name)
        lines += ["", f"## {name}", "", *(line for one in package.__all__ for line in _documented(getattr(package, one)))]
    return "\n".join([*lines, "", "## persist.testing", "", *_directive("persist.testing")])


def integrations() -> str:
    """Classes of frameworks. They are read from the source, since the frameworks are not installed where the site is built."""
    lines = ["# Integrations", "", "[How each is used](../integrations.md)."]
    for package, name in INTEGRATIONS.items():
        source = (ROOT / "persist" / "integrations" / package / "__init__.py").read_text("utf-8")
        lines += ["", f"## {name}", ""]
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                for one in node.names:
                    lines += _directive(f"{node.module}.{one.name}")
    return "\n".join(lines)


def errors() -> str:
    """The tree of errors, what to do, and each class."""
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    (table,) = re.findall(r"^## Errors\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    what = re.sub(r"\]\((?!\w+:)", "](../", table)
    lines = [
        "# Errors",
        "",
        inspect.cleandoc(persist_errors.__doc__ or ""),
        "",
        "## What to do",
        "",
        what.strip(),
        "",
        "## Each error",
        "",
    ]
    for name, found in vars(persist_errors).items():
        if inspect.isclass(found) and issubclass(found, persist.PersistError) and not name.startswith("_"):
            lines += _directive(f"persist.errors.{name}")
    return "\n".join(lines)


def settings() -> str:
    """Every setting with its variable, type, default and the comment above it."""
    source = inspect.getsource(Settings).splitlines()
    lines = [
        "# Settings",
        "",
        inspect.getdoc(Settings) or "",
        "",
        "Pages of docs/ that explain them are named in [operations](../operations.md#databases).",
        "",
    ]
    lines += ["| variable | type | default | |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        (kind,) = re.findall(rf"^    {name}: ([^=\n]+?)(?: = .*)?$", "\n".join(source), re.MULTILINE)
        kind = kind.replace(" | ", " or ")
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `PERSIST_{name.upper()}` | `{kind}` | {default} | {_above(source, name)} |")
    return "\n".join(lines)


def command_line() -> str:
    """Every command with its usage, its help and its options, as `-h` prints them."""
    lines = [
        "# Command line",
        "",
        "`persist COMMAND -h` prints the same. [Exit codes and the rest](../operations.md#the-command-line).",
        "",
    ]
    root = click.Context(main, info_name="persist", **main.context_settings)
    for name in COMMANDS:
        command = main.get_command(root, name)
        assert command is not None
        lines += _command(command, click.Context(command, info_name=name, parent=root), "##")
    return "\n".join(lines)


def tables_page() -> str:
    """The domains with their tables."""
    lines = [
        "# Tables",
        "",
        "On Postgres they are in the schema `persist`. [`persist erd`](../maintenance.md#a-picture-of-the-tables) prints them.",
        "",
    ]
    lines += ["| domain | tables |", "|---|---|"]
    for name in DOMAINS:
        lines.append(f"| [{name}](tables-{name}.md) | {', '.join(f'`{table.name}`' for table in _tables(name))} |")
    return "\n".join(lines)


def tables(name: str) -> str:
    """The picture of a domain's tables, then each with its columns."""
    listed = _tables(name)
    lines = [f"# Tables of {name}", "", f"[The verbs]({name}.md), [what it is for](../{DOMAINS[name]}).", ""]
    lines += [f'<div class="erd" style="overflow-x: auto" markdown="0">{drawing(listed)}</div>']
    for table in listed:
        lines += ["", f"## {table.name}", "", "| column | type | may be NULL | refers to |", "|---|---|---|---|"]
        for column in table.columns:
            refers = ", ".join(sorted({f"`{key.target_fullname.split('.', 1)[1]}`" for key in column.foreign_keys}))
            key = " (key)" if column.primary_key else ""
            lines.append(
                f"| `{column.name}`{key} | {type(column.type).__name__} | {'yes' if column.nullable else ''} | {refers} |"
            )
    return "\n".join(lines)


def _tables(name: str) -> list[Any]:
    return sorted((table for table in metadata.tables.values() if domain_of(table) == name), key=lambda table: table.name)


def _aggregates(name: str) -> list[tuple[str, type]]:
    with Store.open("sqlite:///:memory:") as opened, opened.begin() as tx:
        found = getattr(tx, name)
        of = [
            (f"{name}.{one}", type(value))
            for one, value in _public(found)
            if isinstance(value, Repository) or _is_aggregate(value)
        ]
        return [(name, type(found)), *of] if isinstance(found, Repository) else of


def _is_aggregate(value: object) -> bool:
    return type(value).__module__.startswith("persist.") and not callable(value)


def _public(thing: object) -> Iterator[tuple[str, Any]]:
    names = [name for kind in reversed(type(thing).__mro__) for name in vars(kind) if not name.startswith("_")]
    yield from ((name, getattr(thing, name)) for name in dict.fromkeys(names))


def _within(value: str, found: type) -> str:
    """What a value of a domain is called on its page; where `persist` has it by another name, by that, too."""
    outside = [name for name in persist.__all__ if getattr(persist, name) is found and name != value]
    return f"{value}, in persist {outside[0]}" if outside else value


def _documented(found: Any, *, heading: bool = True, inherited: bool = False, named: str = "") -> list[str]:
    own = getattr(found, "__qualname__", "")
    path = f"{found.__module__}.{own}" if own else ""
    return _directive(path, heading=heading, inherited=inherited, named=named if named != own else "")


def _directive(path: str, *, heading: bool = True, inherited: bool = False, named: str = "") -> list[str]:
    """`named`: what the heading says in the place of the object's own name, as of one that is imported by another."""
    options = [] if heading else ["      show_root_heading: false", "      show_root_toc_entry: false"]
    options += [f"      heading: {named}", f"      toc_label: {named}"] if named else []
    options += ["      inherited_members: true"] if inherited else []
    return [f"::: {path}", *(["    options:", *options] if options else []), ""] if path else []


def _above(source: list[str], name: str) -> str:
    """The comment over a setting; one over several is that of the first."""
    (place,) = [number for number, line in enumerate(source) if line.startswith(f"    {name}:")]
    words: list[str] = []
    while source[place - 1].strip().startswith("#"):
        place -= 1
        words.insert(0, source[place].strip().lstrip("# "))
    return " ".join(words).replace("|", "\\|")


def _command(command: click.Command, ctx: click.Context, level: str) -> list[str]:
    lines = [f"{level} {ctx.command_path}", "", "~~~~text", command.get_help(ctx), "~~~~", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            lines += _command(inner, click.Context(inner, info_name=name, parent=ctx), f"{level}#")
    return lines
