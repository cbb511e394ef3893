"""What readers look for, where the answer is, and how many clicks away."""

import re
from functools import cache
from pathlib import Path

from website.elsewhere import links_of

QUESTIONS = {
    "What survives a power loss?": "reliability.md#what-is-acknowledged",
    "How does an answer go on after a crash?": "chat.md#crashes-resuming-taking-over",
    "How does another process show an answer while it is made?": "chat.md#following-an-answer",
    "How do I stop an answer?": "chat.md#a-stop-button",
    "How do I wait for a person's approval?": "workflows.md#gates",
    "How do I send a mail once, whatever dies?": "workflows.md#side-effects-once",
    "How do I start a run every night?": "workflows.md#schedules",
    "How do I start a worker from the command line?": "workflows.md#from-the-command-line",
    "How do I let only three run at once?": "workflows.md#limits",
    "How do I commit my rows and persist's together?": "integration.md#your-transaction",
    "How do I use it in FastAPI?": "how-to/fastapi.md",
    "May I open a store before a fork?": "how-to/celery-and-fork.md",
    "How do I test my code?": "how-to/pytest.md",
    "How do I run Alembic beside my own?": "how-to/alembic.md",
    "How do I upgrade while others write?": "operations.md#large-tables-on-postgres",
    "What does revision 0015 add?": "upgrading.md#what-each-revision-adds",
    "How do I back up?": "deployment.md#backups",
    "How do I restore?": "deployment.md#a-restore-drill",
    "Which role needs which grant?": "deployment.md#roles",
    "Does it work behind PgBouncer?": "deployment.md#a-pooler",
    "What do I alert on?": "deployment.md#what-to-alert-on",
    "How do I run as a user without rights?": "how-to/containers.md",
    "How do I delete a customer?": "erasing.md",
    "How do I delete what is older than ninety days?": "maintenance.md#retention",
    "How do I keep customers apart?": "tenants.md",
    "How do I move from SQLite to Postgres?": "moving.md#copy",
    "Where do files of messages go?": "blobs.md#where-bodies-are",
    "What do I do about StoreBusy?": "operations.md#errors",
    "What does a conversation cost?": "chat.md#usage-and-cost",
    "How much does one server hold?": "scale.md#what-one-server-holds",
    "How do I leave LangGraph's saver?": "coming-from-langgraph.md",
}
"""Each with a page of docs/, and the heading in it that answers."""


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as code hosts and the site make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return frozenset(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", _shown(heading)).strip().lower()) for heading in headings)


def within(clicks: int, start: Path, page: Path, anchor: str) -> bool:
    """Whether so many links lead from one page to a heading of another. Its own headings are one click away."""
    if start == page and (not anchor or clicks):
        return True
    for target, to in links_of(start.read_text("utf-8")) if clicks else ():
        place = (start.parent / target).resolve() if target else start
        if place == page and (not anchor or to == anchor):
            return True
        if place.suffix == ".md" and place.exists() and clicks > 1 and within(clicks - 1, place, page, anchor):
            return True
    return False


def _shown(heading: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading)
