"""Doctor's check of a run's own file: what `runs.audit` finds, above all wrong attachments."""

from collections.abc import Iterator

from persist.db.dialects.findings import Problem, Severity
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import NotFound
from persist.programs.verbs.audits import RAW_WRITE
from persist.programs.verbs.runs import ProgramRuns

_SEVERITY = {
    "attachment_missing": Severity.ERROR,
    "attachment_escapes": Severity.ERROR,
    "orphan": Severity.WARNING,
    "circle": Severity.WARNING,
    "guard_missing": Severity.WARNING,
    "trigger_unknown": Severity.WARNING,
}
"""The codes that doctor reports. Others tell what a raw writer did, which may be right."""


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """Audit the run, or the agents, whose file this is; a database of many runs is not audited."""
    run_id = work.runtime.scopes.get("run_id")
    if run_id is None:
        return
    try:
        found = ProgramRuns(work).audit(run_id)
    except NotFound:  # the process that made the file died before it inserted the run
        return
    noted = sum(finding.code == RAW_WRITE for finding in found)
    if noted:
        message = f"programs that are not persist left {noted:,} notes of what they wrote; an audit tells which rows."
        yield Problem(f"program_{RAW_WRITE}", Severity.INFO, f"run {run_id}", message)
    for finding in found:
        if finding.code == RAW_WRITE:
            continue
        severity = _SEVERITY.get(finding.code, Severity.INFO)
        yield Problem(f"program_{finding.code}", severity, finding.subject, finding.message)
