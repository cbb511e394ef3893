"""When to fetch a link again, by the states fetched last. Pure."""

from datetime import timedelta

from persist.telemetry.schemas import LinkKind

AFTER_ERROR = timedelta(seconds=300)
UNKNOWN = timedelta(seconds=300)
"""The interval for states that are not listed below."""

_ENDED = timedelta(seconds=3600)
_OPEN_ISSUE = timedelta(seconds=600)
_BUILDING = timedelta(seconds=60)
_IN_REVIEW = timedelta(seconds=300)
_APPROVED = timedelta(seconds=600)

_ISSUES = {"open": _OPEN_ISSUE, "closed": _ENDED}
_ENDED_PULLS = ("closed", "merged")
_BUILT = (None, "passed", "failed")


def refresh_interval(
    kind: LinkKind, *, issue_state: str | None, pr_state: str | None, build_state: str | None, review_state: str | None
) -> timedelta:
    """How long fetched states stay fresh. For a pull request, None means open, built or without a review, respectively."""
    if kind is LinkKind.ISSUE:
        return UNKNOWN if issue_state is None else _ISSUES.get(issue_state, UNKNOWN)
    if pr_state in _ENDED_PULLS:
        return _ENDED
    if pr_state not in (None, "open"):
        return UNKNOWN
    if build_state == "building":
        return _BUILDING
    if build_state in _BUILT and review_state == "approved":
        return _APPROVED
    return _IN_REVIEW
