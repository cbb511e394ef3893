"""The findings of `persist doctor`, one for each problem, sorted by severity."""

from collections import Counter
from collections.abc import Iterable

from persist.db.dialects.findings import Problem, Severity
from persist.db.values.frozen import Value

MAX_PER_CODE = 100
_ORDER = list(Severity)


class Finding(Value):
    """A problem found by doctor.

    `code` is for programs, `message` for people. `subject`: a table, a file or a row's id. `fixed`: doctor has just repaired it.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    fixed: bool = False


def finding_of(trouble: Problem, *, fixed: bool = False, failed: str | None = None) -> Finding:
    """Return the finding for a problem. `failed`: why its repair failed."""
    message = trouble.message if failed is None else f"{trouble.message} It could not be fixed: {failed}"
    return Finding(code=trouble.code, severity=trouble.severity, subject=trouble.subject, message=message, fixed=fixed)


def told(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by severity, the most severe first."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


def capped(troubles: Iterable[Problem], *, fix: bool) -> list[Problem]:
    """The first hundred problems of each code, and a count of the others; with `fix` also every repairable one."""
    kept: list[Problem] = []
    seen: Counter[str] = Counter()
    last: dict[str, Problem] = {}
    for trouble in troubles:
        seen[trouble.code] += 1
        last[trouble.code] = trouble
        if seen[trouble.code] <= MAX_PER_CODE or (fix and trouble.repair is not None):
            kept.append(trouble)
    listed = Counter(trouble.code for trouble in kept)
    for code, count in (seen - listed).items():
        kept.append(Problem(code, last[code].severity, "…", f"and {count:,} more of this kind."))
    return kept
