"""`tx.telemetry.links`: the states of GitHub issues and pull requests as last fetched, and when to fetch them again."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import delete, func, or_, select

from persist.db.expressions.keyset import behind
from persist.db.expressions.text import like
from persist.db.expressions.upsert import merge
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.own_scope import ScopedValues, resolve_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_flag, optional_label
from persist.db.values.clock import EPOCH, as_utc, instant_after
from persist.db.values.pages import check_limit
from persist.errors import InvalidValue
from persist.telemetry.models import links
from persist.telemetry.schemas import GithubLink, LinkKind
from persist.telemetry.windows import second, second_or_now

_KINDS = {"issue": LinkKind.ISSUE, "issues": LinkKind.ISSUE, "pull": LinkKind.PR, "pulls": LinkKind.PR}
_PATHS = {LinkKind.ISSUE: "issue", LinkKind.PR: "pull"}
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_DIGITS = re.compile(r"[0-9]{1,18}")
_USUAL_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True)
class Link:
    """An issue or pull request: its canonical URL, `https://host/owner/repo/issue/1` or `…/pull/1`, and the URL's pieces."""

    url: str
    kind: LinkKind
    host: str
    owner: str
    repo: str
    resource_number: int


def parse_link(path: str, url: str) -> Link:
    """The canonical link of an issue's or pull request's URL, whatever its spelling. Raises InvalidValue for any other URL."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        raise _invalid(path) from None
    host = parts.netloc.lower().removeprefix("www.").removesuffix(_USUAL_PORTS.get(parts.scheme, ""))
    pieces = parts.path.split("/")[1:5]
    if parts.scheme not in _USUAL_PORTS or not _HOST.fullmatch(host) or len(pieces) < 4:
        raise _invalid(path)
    owner, repo, word, digits = pieces
    kind = _KINDS.get(word.lower())
    number = int(digits) if _DIGITS.fullmatch(digits) else 0
    if kind is None or number == 0 or not _NAME.fullmatch(owner) or not _NAME.fullmatch(repo):
        raise _invalid(path)
    return Link(f"https://{host}/{owner}/{repo}/{_PATHS[kind]}/{number}", kind, host, owner, repo, number)


def canonical_url(url: object) -> str | None:
    """The canonical form of a stored URL; None if it is no link. Rows with the same canonical URL are of the same link."""
    try:
        return parse_link("url", url).url if isinstance(url, str) else None
    except InvalidValue:
        return None


def _invalid(path: str) -> InvalidValue:
    return InvalidValue(path, "expected the URL of an issue or a pull request, such as https://github.com/owner/repo/pull/1.")


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


List = list
_L = links.c
_LINK = ScopedValues(GithubLink, links, "instance_id")
_KEY = ("instance_id", "url")
_of_owner = _L.instance_id == param("owner")
_FETCHED = Statement(merge(links, *_KEY, **{name: "new" for name in _LINK.fields if name not in _KEY}).returning(*_LINK.columns))  # type: ignore[arg-type]  # every value is a Rule
_FAILED = Statement(merge(links, *_KEY, refresh_after="new", last_error="new").returning(*_LINK.columns))
_DELETE = Statement(delete(links).where(_of_owner, _L.url == param("of_url")))
# Other programs may spell the same link's URL and pieces differently. But every spelling contains the digits of its number,
# perhaps after zeros: this narrows the rows down, and `_rows` then compares canonical URLs.
_SAME_DIGITS = Statement(
    select(*_LINK.columns)
    .where(_of_owner, or_(like(_L.url, "digits"), like(_L.url, "padded")))
    .order_by(_L.fetched_at.desc(), _L.url)
)
_ALL = Statement(select(*_LINK.columns).where(_of_owner).order_by(_L.url))
_other = links.alias("other")
_same_number = select(func.count()).where(_other.c.instance_id == _L.instance_id, _other.c.resource_number == _L.resource_number)
_due_order = (_L.refresh_after, _L.url)
_due = (
    select(*_LINK.columns, _same_number.scalar_subquery())
    .where(_of_owner, _L.refresh_after <= param("now"))
    .order_by(*_due_order)
)
_DUE = Statement(_due.limit(LIMIT))
_DUE_AFTER = Statement(_due.where(behind(_due_order, ("after_due", "after_url"))).limit(LIMIT))
_URL, _NUMBER, _FETCHED_AT, _AGAIN = (
    _LINK.fields.index(name) for name in ("url", "resource_number", "fetched_at", "refresh_after")
)


class GithubLinks(Repository[F]):
    """`tx.telemetry.links`. `instance_id` None: the instance that owns the file. Any spelling of a URL finds its link.

    URLs are stored in one canonical form. A row written by another program keeps its spelling. If a link has several rows, the
    one fetched last counts, and the link's next write deletes the others.
    """

    @writes
    def upsert(
        self,
        url: str,
        *,
        fetched_at: datetime,
        issue_state: str | None = None,
        pr_state: str | None = None,
        build_state: str | None = None,
        review_state: str | None = None,
        pr_is_draft: bool | None = None,
        instance_id: str | None = None,
    ) -> GithubLink:
        """Store a link's fetched states, in place of all earlier ones and of an earlier error.

        Known states: open, closed, merged; building, passed, failed; pending, approved. Other states are stored too, and make
        the link due again after five minutes. Raises InvalidValue unless the URL is that of an issue or pull request.
        """
        link, at = parse_link("url", self._work.label("url", url)), second("fetched_at", fetched_at)
        states = {
            "issue_state": optional_label("issue_state", issue_state),
            "pr_state": optional_label("pr_state", pr_state),
            "build_state": optional_label("build_state", build_state),
            "review_state": optional_label("review_state", review_state),
        }
        is_draft = None if pr_is_draft is None else check_flag("pr_is_draft", pr_is_draft)
        due = instant_after("fetched_at", at, refresh_interval(link.kind, **states))
        found = {**states, "pr_is_draft": is_draft, "fetched_at": at, "refresh_after": due, "last_error": None}
        return self._store(_FETCHED, link, instance_id, found)

    @writes
    def record_error(self, url: str, error: str, *, at: datetime | None = None, instance_id: str | None = None) -> GithubLink:
        """Store an error of fetching.

        Known states are kept, and the link is due in five minutes. Never fetched, it has states None and a `fetched_at` of 1970.
        """
        work = self._work
        link, text = parse_link("url", work.label("url", url)), work.body("error", error)
        due = instant_after("at", second_or_now(work, "at", at), AFTER_ERROR)
        unknown = dict.fromkeys(("issue_state", "pr_state", "build_state", "review_state", "pr_is_draft"))
        found = {**unknown, "fetched_at": EPOCH, "refresh_after": due, "last_error": text}
        return self._store(_FAILED, link, instance_id, found)

    @reads
    def get(self, url: str, *, instance_id: str | None = None) -> GithubLink | None:
        """What is stored of a link; None if nothing is."""
        work = self._work
        link = parse_link("url", work.label("url", url))
        rows = self._rows(resolve_scope(work, "instance_id", instance_id), link)
        return _LINK.public(work, rows[0]) if rows else None

    @reads
    def list(self, *, instance_id: str | None = None) -> List[GithubLink]:
        """All links of the instance, ordered by URL; one row for each link."""
        work = self._work
        rows = work.rows(_ALL, owner=resolve_scope(work, "instance_id", instance_id))
        newest: dict[str, Row] = {}
        for row in rows:
            link = canonical_url(row[_URL]) or row[_URL]
            if link not in newest or row[_FETCHED_AT] > newest[link][_FETCHED_AT]:
                newest[link] = row
        newest_urls = {row[_URL] for row in newest.values()}
        return [_LINK.public(work, row) for row in rows if row[_URL] in newest_urls]

    @reads
    def due(self, *, now: datetime | None = None, limit: int = 5, instance_id: str | None = None) -> List[GithubLink]:
        """The links to fetch again at `now` (None: the present), the longest due first, at most `limit`.

        Rows that an `upsert` cannot refresh are left out: URLs that are no link, and links with a newer row.
        """
        work = self._work
        at = work.now() if now is None else as_utc("now", now)
        maximum, owner = check_limit(limit), resolve_scope(work, "instance_id", instance_id)
        found: List[GithubLink] = []
        rows = work.rows(_DUE, owner=owner, now=at, limit=maximum)
        while rows:
            found += [_LINK.public(work, row) for *row, same_number in rows if self._is_newest(owner, row, same_number)]
            if len(rows) < maximum or len(found) >= maximum:
                break
            last = {"after_due": rows[-1][_AGAIN], "after_url": rows[-1][_URL]}
            rows = work.rows(_DUE_AFTER, owner=owner, now=at, limit=maximum, **last)
        return found[:maximum]

    def _store(self, prepared: Statement, link: Link, instance_id: str | None, found: dict[str, Any]) -> GithubLink:
        pieces = {name: getattr(link, name) for name in ("url", "kind", "host", "owner", "repo", "resource_number")}
        owner = resolve_scope(self._work, "instance_id", instance_id)
        newest, *others = [row[_URL] for row in self._rows(owner, link)] or [link.url]
        pieces["url"] = newest
        with self._work.batch(last=True) as batch:
            for url in others:
                batch.run(_DELETE, owner=owner, of_url=url)
            stored = batch.returned(prepared, instance_id=owner, **pieces, **found)
        assert stored.result is not None
        return _LINK.public(self._work, stored.result)

    def _rows(self, owner: str, link: Link) -> List[Row]:
        digits = link.resource_number
        rows = self._work.rows(_SAME_DIGITS, owner=owner, digits=f"%/{digits}%", padded=f"%/0%{digits}%")
        return [row for row in rows if canonical_url(row[_URL]) == link.url]

    def _is_newest(self, owner: str, row: Sequence[Any], same_number: int) -> bool:
        url = canonical_url(row[_URL])
        if url is None:
            return False
        link = parse_link("url", url)
        if same_number < 2 and row[_NUMBER] == link.resource_number:
            return True
        rows = self._rows(owner, link)
        return bool(rows) and rows[0][_URL] == row[_URL]
