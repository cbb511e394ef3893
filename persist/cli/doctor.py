"""`persist doctor` and `persist quarantine`: what is wrong with a database."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.nouns import Answer, Noun, Table, answers
from persist.cli.output import Paint, Progress, columns, inline, instant, say, say_json, shortened
from persist.db.dialects.interface import Severity
from persist.db.values.pages import Page
from persist.errors import PersistError
from persist.maintenance import quarantined, quarantined_row, restore_row
from persist.maintenance.checkups import Finding, finding_of_error
from persist.maintenance.checkups import doctor as examine
from persist.maintenance.quarantine import Quarantined

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}


@click.command(short_help="Look for what is wrong, and mend what is safe to mend.")
@on_named_database
@click.option("--fix", is_flag=True, help="Mend what can be mended without deleting any data.")
@click.option("--full", is_flag=True, help="On SQLite, compare every index with its table, too; slower.")
@as_json
@quiet("Print errors alone.")
@click.pass_context
def doctor(ctx: click.Context, database: Database, fix: bool, full: bool, as_json: bool, quiet: bool) -> None:
    """Look for damage, missing columns and indexes, runs that are stuck, tool calls nobody answers, and more.

    Exit code 1 if an error remains, else 0: warnings and infos are for reading. --fix folds text and progressions, makes missing
    indexes, moves sequences on, notes the version, drops turns whose process is dead, and moves rows that cannot be read into the
    quarantine. With --json: an object with `items`, each with `code`, `severity`, `subject`, `message` and `fixed`, and `cursor`.
    """
    left = "What was mended stays so; run it again for the rest." if fix else "Nothing was changed."
    with Progress("Examining", left=left, quiet=quiet or as_json) as progress:
        findings = _found(database, progress, fix=fix, full=full)
    if as_json:
        say_json({"items": findings, "cursor": None})
    else:
        paint = Paint()
        for finding in findings:
            if not quiet or finding.severity == Severity.ERROR:
                say(_line(finding, paint))
        if not quiet:
            say(_summary(findings))
    if any(finding.severity == Severity.ERROR and not finding.fixed for finding in findings):
        ctx.exit(1)


def _found(database: Database, progress: Progress, *, fix: bool, full: bool) -> list[Finding]:
    """A database that cannot be opened has one finding; what is no database at all is a failure of the command."""
    try:
        with database.open(read_only=True) as store:
            findings = progress.run(lambda: examine(store, full=full, progress=progress))
            if not fix:
                progress.finish()
        if not fix or any(finding.code == "corrupt" for finding in findings):
            return findings  # nothing is written to a damaged file
        with database.open_current() as store:
            findings = progress.run(lambda: examine(store, fix=True, full=full, progress=progress))
            progress.finish()
            return findings
    except PersistError as error:
        finding = finding_of_error(error)
        if finding is None:
            raise
        return [finding]


def _line(finding: Finding, paint: Paint) -> str:
    severity = paint(f"{finding.severity.value:<7}", fg=_COLOURS[finding.severity])
    fixed = paint(" Fixed.", fg="green") if finding.fixed else ""
    return f"{severity}  {inline(finding.subject)}: {inline(finding.message)} [{finding.code}]{fixed}"


def _summary(findings: Sequence[Finding]) -> str:
    if not findings:
        return "Nothing is wrong."
    counts = Counter(finding.severity for finding in findings if not finding.fixed)
    fixed = sum(finding.fixed for finding in findings)
    words = [f"{counts[severity]:,} {severity.value}{'s' * (counts[severity] != 1)}" for severity in Severity if counts[severity]]
    if fixed:
        words.append(f"{fixed:,} fixed")
    return f"{', '.join(words)}."


quarantine = Noun(
    "quarantine",
    "Rows that `persist doctor --fix` set aside, since one of their values, or of a row they depend on, cannot be read.",
)
ROWS = Table[Quarantined](
    "Nothing is in quarantine.",
    ("ID", "GROUP", "MOVED", "ROW", "CAUSE"),
    lambda row: (row.id, row.group_id, row.moved_at, f"{row.table} {row.key}", row.cause),
    json=lambda row: row.model_dump(mode="json", exclude={"row"}),
)


@quarantine.command(short_help="List them, in the order in which they were moved.")
@on_named_database
@click.option("--after", metavar="ID", help="Those after this one.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@answers(None)
def ls(database: Database, after: str | None, limit: int) -> Answer:
    """List the rows in quarantine. Those of one GROUP were moved, and come back, together.

    With --json: an object with `items` and `cursor`, null on the last page.
    """
    with database.open(read_only=True) as store:
        found = quarantined(store, after=after, limit=limit + 1)
    return in_quarantine(found, limit)


def in_quarantine(found: list[Quarantined], limit: int) -> Answer:
    """The answer of `persist quarantine ls` for rows of which there may be one more than the page takes."""
    answer = ROWS.page(Page(found[:limit], found[limit - 1].id if len(found) > limit else None))
    return answer if found else Answer(answer.json, answer.notes)  # an empty quarantine is what was hoped for


@quarantine.command(short_help="Print what a row held.")
@click.argument("id")
@on_database
@answers(None)
def show(id: str, database: Database) -> Answer:
    """Print a row in quarantine: the value of each column, and its form."""
    with database.open(read_only=True) as store:
        row = quarantined_row(store, id)
    head = [f"{inline(row.table)} {inline(row.key)}, moved {instant(row.moved_at)} UTC", inline(row.cause)]
    cells = columns([(inline(name), *_form(cell)) for name, cell in (row.row or {}).items()])
    return Answer(row, chain(head, (f"  {line}" for line in cells)))


@quarantine.command(short_help="Bring a row back as it was.")
@click.argument("id")
@on_database
@answers("Print nothing.")
def restore(id: str, database: Database) -> Answer:
    """Bring a row back byte for byte, with the rows that were moved with it. It cannot be read then any more than before."""
    with database.open_existing() as store:
        found = restore_row(store, id)
    rows = [inline(f"{row.table} {row.key}") for row in found]
    return Answer({"items": map(ROWS.json, found), "cursor": None}, rows, notes=[f"Brought back {len(found):,} rows."])


def _form(cell: dict[str, object] | None) -> tuple[str, str]:
    if cell is None:
        return "null", ""
    ((form, value),) = cell.items()
    return form, shortened(value, 100)
