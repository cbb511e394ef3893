"""Conversations as lines of text that a person can read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from persist.cli.output import Paint, columns, inline, instant, printable, shortened
from persist.cli.run_lines import cut
from persist.conversations.schemas import Branch, ConvMessage, ConvSession

HEAD = ("SESSION", "STATUS", "AGENT", "UPDATED (UTC)", "BRANCHES", "MESSAGES", "NAME")
_NAME = 60
_ROLES = {"user": "green", "assistant": "cyan", "system": "magenta", "action": "yellow", "tool": "yellow"}
_STATUSES = {"running": "yellow", "completed": "green", "failed": "red", "timed_out": "red", "aborted": "red", "cancelled": "red"}
_SAID = ("assistant_response", "instruction", "system_message", "system", "text", "content")


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session of a list, and how much it holds."""

    session: ConvSession
    branches: int
    messages: int


def session_cells(row: SessionRow) -> tuple[str, ...]:
    """The cells below HEAD."""
    session = row.session
    return (
        inline(session.id),
        inline(session.status or "-"),
        inline(session.agent_name or "-"),
        instant(session.updated_at),
        f"{row.branches:,}",
        f"{row.messages:,}",
        cut(session.name or "", _NAME),
    )


def session_lines(session: ConvSession, branches: Sequence[Branch], paint: Paint) -> Iterator[str]:
    """What is known of the session, then its branches."""
    for line in columns(_header(session, paint)):
        name, _, value = line.partition(" ")
        yield f"{paint(name, dim=True)} {value}"
    if branches:
        yield from ("", paint("branches", bold=True))
        yield from columns([_branch(branch) for branch in branches])


def message_lines(message: ConvMessage, paint: Paint) -> Iterator[str]:
    """Who says it, when and to whom, then what was said, whatever its shape."""
    role = inline(message.role)
    to = [f"{name} {inline(value)}" for name, value in (("to", message.recipient), ("in", message.channel)) if value]
    about = "  ".join([instant(message.created_at), *to, inline(message.id)])
    yield f"{paint(role, fg=_ROLES.get(message.role), bold=True)}  {paint(about, dim=True)}"
    for line in _said(message.content):
        yield f"  {line}"


def _said(content: Any) -> list[str]:
    """Text as text; of an object the one text that matters, if that is all there is to it; else JSON, cut."""
    if isinstance(content, dict):
        said = {name: value for name, value in content.items() if value not in (None, "", [], {})}
        if len(said) == 1 and next(iter(said)) in _SAID:
            content = next(iter(said.values()))
    return printable(content).split("\n") if isinstance(content, str) else [shortened(content)]


def _header(session: ConvSession, paint: Paint) -> Iterator[tuple[str, str]]:
    yield "session", inline(session.id)
    yield "status", paint(inline(session.status or "-"), fg=_STATUSES.get(session.status or ""))
    hints = {
        "name": session.name,
        "user": session.user,
        "reason": session.status_reason_summary,
        "agent": session.agent_name,
        "playbook": session.playbook_name,
        "kind": session.invocation_kind,
        "show": session.show_topic,
        "play": session.show_play_name,
        "artifacts": session.artifacts_path,
        "source": session.source_kind,
    }
    yield from ((name, inline(value)) for name, value in hints.items() if value)
    instants = {
        "created": session.created_at,
        "started": session.started_at,
        "updated": session.updated_at,
        "spoke": session.last_message_at,
        "ended": session.ended_at,
    }
    for name, at in instants.items():
        if at is not None:
            guess = " (about)" if name == "ended" and session.ended_at_is_approximate else ""
            yield name, f"{instant(at)} UTC{guess}"
    if session.node_metadata:
        yield "metadata", shortened(session.node_metadata)


def _branch(branch: Branch) -> tuple[str, ...]:
    origin = "" if branch.parent_branch_id is None else f"from {inline(branch.parent_branch_id)} at {branch.forked_at_ord}"
    return f"  {inline(branch.id)}", inline(branch.status or "-"), cut(branch.name or "-", _NAME), origin
