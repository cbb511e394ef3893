"""What may be wrong with a run's own file: the traces that `runs.audit` finds, attachments above all."""

from collections.abc import Iterator

from persist.db.trouble import Severity, Trouble
from persist.db.work import Work
from persist.errors import NotFound
from persist.programs.runs import ProgramRuns

_SEVERITY = {
    "attachment_missing": Severity.ERROR,
    "attachment_escapes": Severity.ERROR,
    "orphan": Severity.WARNING,
    "circle": Severity.WARNING,
}
"""Other codes tell what a raw writer did, which may be right."""


def checkup(work: Work) -> Iterator[Trouble]:
    """The audit of the run, or of the agents, whose file this is; in a database of many runs nothing is looked for."""
    run_id = work.runtime.scopes.get("run_id")
    if run_id is None:
        return
    try:
        found = ProgramRuns(work).audit(run_id)
    except NotFound:  # its maker died before the run was there
        return
    for finding in found:
        severity = _SEVERITY.get(finding.code, Severity.INFO)
        yield Trouble(f"program_{finding.code}", severity, finding.subject, finding.message)
