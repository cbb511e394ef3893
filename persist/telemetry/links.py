"""Links to GitHub: what was found the last time, and when to look again."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, delete, func, or_, select, tuple_

from persist.db.checks import check_flag, optional_label
from persist.db.clock import EPOCH, aware
from persist.db.cursor import check_limit
from persist.db.hot import LIMIT, Hot, Row, param
from persist.db.insert import merge
from persist.db.own import own_scope, shown_scope
from persist.db.repository import Repository, reads, writes
from persist.db.values import build
from persist.db.work import Work
from persist.telemetry.instants import later, second, second_or_now
from persist.telemetry.link_refresh import AFTER_ERROR, refresh_interval
from persist.telemetry.link_urls import Link, meaning, parse_link
from persist.telemetry.models import links
from persist.telemetry.schemas import GithubLink

List = list
_L = links.c
_FIELDS = tuple(GithubLink.model_fields)
_COLUMNS = tuple(_L[name] for name in _FIELDS)
_KEY = ("instance_id", "url")
_mine = _L.instance_id == param("owner")

_FETCHED = Hot(merge(links, *_KEY, **{name: "new" for name in _FIELDS if name not in _KEY}).returning(*_COLUMNS))  # type: ignore[arg-type]  # every value is a Rule
_FAILED = Hot(merge(links, *_KEY, refresh_after="new", last_error="new").returning(*_COLUMNS))
_FORGET = Hot(delete(links).where(_mine, _L.url == param("of_url")))
# Others write the same link in ways of their own, and its pieces as they like: the digits of its number, perhaps behind zeros,
# narrow it down, which no URL of it is without; what a URL means is looked at here.
_LIKE_IT = Hot(
    select(*_COLUMNS)
    .where(_mine, or_(_L.url.like(param("digits")), _L.url.like(param("padded"))))
    .order_by(_L.fetched_at.desc(), _L.url)
)
_ALL = Hot(select(*_COLUMNS).where(_mine).order_by(_L.url))
_other = links.alias("other")
_same_number = select(func.count()).where(_other.c.instance_id == _L.instance_id, _other.c.resource_number == _L.resource_number)
_place = (_L.refresh_after, _L.url)
_due = select(*_COLUMNS, _same_number.scalar_subquery()).where(_mine, _L.refresh_after <= param("now")).order_by(*_place)
_DUE = Hot(_due.limit(LIMIT))
_after = (bindparam(f"after_{column.name}", type_=column.type) for column in _place)
_DUE_AFTER = Hot(_due.where(tuple_(*_place) > tuple_(*_after)).limit(LIMIT))
_URL, _NUMBER, _FETCHED_AT, _AGAIN = (_FIELDS.index(name) for name in ("url", "resource_number", "fetched_at", "refresh_after"))


class GithubLinks(Repository):
    """`tx.telemetry.links`. `instance_id` None: the file's own. URLs are stored in one canonical form, and found by any.

    A row of another program keeps its own spelling, and is the link's row all the same. Of several rows of one link the one
    fetched last counts; the next write lets the others go.
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
        """What was fetched takes the place of everything known before, an error included.

        Known words: open, closed, merged; building, passed, failed; pending, approved. Others are kept as well, and make it due
        again after five minutes. InvalidValue if the URL is that of no issue and no pull request.
        """
        link, at = parse_link("url", self._work.label("url", url)), second("fetched_at", fetched_at)
        states = {
            "issue_state": optional_label("issue_state", issue_state),
            "pr_state": optional_label("pr_state", pr_state),
            "build_state": optional_label("build_state", build_state),
            "review_state": optional_label("review_state", review_state),
        }
        draft = None if pr_is_draft is None else check_flag("pr_is_draft", pr_is_draft)
        due = later("fetched_at", at, refresh_interval(link.kind, **states))
        found = {**states, "pr_is_draft": draft, "fetched_at": at, "refresh_after": due, "last_error": None}
        return self._store(_FETCHED, link, instance_id, found)

    @writes
    def record_error(self, url: str, error: str, *, at: datetime | None = None, instance_id: str | None = None) -> GithubLink:
        """Fetching failed: what is known stays, and it is due again after five minutes.

        A link that was never fetched has no states then, and `fetched_at` is 1970.
        """
        work = self._work
        link, text = parse_link("url", work.label("url", url)), work.body("error", error)
        due = later("at", second_or_now(work, "at", at), AFTER_ERROR)
        unknown = dict.fromkeys(("issue_state", "pr_state", "build_state", "review_state", "pr_is_draft"))
        found = {**unknown, "fetched_at": EPOCH, "refresh_after": due, "last_error": text}
        return self._store(_FAILED, link, instance_id, found)

    @reads
    def get(self, url: str, *, instance_id: str | None = None) -> GithubLink | None:
        """What is known of a link, if anything is."""
        work = self._work
        link = parse_link("url", work.label("url", url))
        rows = self._rows(own_scope(work, "instance_id", instance_id), link)
        return _value(work, rows[0]) if rows else None

    @reads
    def list(self, *, instance_id: str | None = None) -> List[GithubLink]:
        """All of them, by URL."""
        work = self._work
        rows = work.rows(_ALL, owner=own_scope(work, "instance_id", instance_id))
        newest: dict[str, Row] = {}
        for row in rows:
            link = meaning(row[_URL]) or row[_URL]
            if link not in newest or row[_FETCHED_AT] > newest[link][_FETCHED_AT]:
                newest[link] = row
        shown = {row[_URL] for row in newest.values()}
        return [_value(work, row) for row in rows if row[_URL] in shown]

    @reads
    def due(self, *, now: datetime | None = None, limit: int = 5, instance_id: str | None = None) -> List[GithubLink]:
        """Those to be fetched again at an instant, or now; the longest due first.

        Rows that no `upsert` could refresh are left out: of no link, or of one that another row knows newer things of.
        """
        work = self._work
        at = work.now() if now is None else aware("now", now)
        most, owner = check_limit(limit), own_scope(work, "instance_id", instance_id)
        found: List[GithubLink] = []
        rows = work.rows(_DUE, owner=owner, now=at, limit=most)
        while rows:
            found += [_value(work, row) for *row, same in rows if self._counts(owner, row, same)]
            if len(rows) < most or len(found) >= most:
                break
            last = {"after_refresh_after": rows[-1][_AGAIN], "after_url": rows[-1][_URL]}
            rows = work.rows(_DUE_AFTER, owner=owner, now=at, limit=most, **last)
        return found[:most]

    def _store(self, hot: Hot, link: Link, instance_id: str | None, found: dict[str, Any]) -> GithubLink:
        pieces = {name: getattr(link, name) for name in ("url", "kind", "host", "owner", "repo", "resource_number")}
        owner = own_scope(self._work, "instance_id", instance_id)
        for place, same in enumerate(self._rows(owner, link)):
            if place == 0:
                pieces["url"] = same[_URL]
            else:
                self._work.run(_FORGET, owner=owner, of_url=same[_URL])
        row = self._work.returned(hot, instance_id=owner, **pieces, **found)
        assert row is not None
        return _value(self._work, row)

    def _rows(self, owner: str, link: Link) -> List[Row]:
        """The rows that mean this link, the one fetched last first."""
        digits = link.resource_number
        rows = self._work.rows(_LIKE_IT, owner=owner, digits=f"%/{digits}%", padded=f"%/0%{digits}%")
        return [row for row in rows if meaning(row[_URL]) == link.url]

    def _counts(self, owner: str, row: Sequence[Any], same_number: int) -> bool:
        """Whether a row is what is known of its link."""
        url = meaning(row[_URL])
        if url is None:
            return False
        link = parse_link("url", url)
        if same_number < 2 and row[_NUMBER] == link.resource_number:
            return True
        rows = self._rows(owner, link)
        return bool(rows) and rows[0][_URL] == row[_URL]


def _value(work: Work, row: Sequence[Any]) -> GithubLink:
    fields = dict(zip(_FIELDS, row, strict=True))
    fields["instance_id"] = shown_scope(work, "instance_id", fields["instance_id"])
    return build(GithubLink, fields)
