"""`persist doctor`: what is wrong with a database."""

from collections import Counter
from collections.abc import Sequence

import click

from persist.cli.database import Database, as_json, on_named_database, quiet
from persist.cli.output import Paint, inline, say, say_json_list
from persist.cli.progress import Progress
from persist.db.dialects.findings import Severity
from persist.errors import PersistError
from persist.maintenance.doctor_checks import doctor as examine
from persist.maintenance.doctor_checks import finding_of_error
from persist.maintenance.findings import Finding

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

    Exit code 1 if an error remains, else 0: warnings and infos are for reading. --fix folds text and progressions, makes
    missing indexes, moves sequences on, notes the version, drops turns whose process is dead, and moves rows that cannot be
    read into the quarantine. With --json: an object with `items`, each with `code`, `severity`, `subject`,
    `message` and `fixed`, and `cursor`.
    """
    left = "What was mended stays so; run it again for the rest." if fix else "Nothing was changed."
    with Progress("Examining", left=left, quiet=quiet or as_json) as progress:
        findings = _found(database, progress, fix=fix, full=full)
    if as_json:
        say_json_list(finding.model_dump(mode="json") for finding in findings)
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
