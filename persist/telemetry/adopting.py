"""Adopting files of instances: links that another program wrote with another spelling of their URL."""

from sqlalchemy import delete, select, update

from persist.db.operations.adopting import Rules, Takeover
from persist.telemetry.link_urls import canonical_url, parse_link
from persist.telemetry.models import links

_L = links.c


def _canonical(takeover: Takeover) -> None:
    """Keep one row for each link, the one fetched last, under the link's canonical URL."""
    if not takeover.brought(links):
        return
    rows: dict[str, list[str]] = {}
    for (url,) in takeover.rows(select(_L.url).order_by(_L.fetched_at.desc(), _L.url)):
        canonical = canonical_url(url)
        if canonical is not None:
            rows.setdefault(canonical, []).append(url)
    older = [url for urls in rows.values() for url in urls[1:]]
    for url in older:
        takeover.run(delete(links).where(_L.url == url))
    others = {canonical: urls[0] for canonical, urls in rows.items() if urls[0] != canonical}
    for canonical, url in others.items():
        link = parse_link("url", canonical)
        pieces = {name: getattr(link, name) for name in ("url", "kind", "host", "owner", "repo", "resource_number")}
        takeover.run(update(links).where(_L.url == url).values(pieces))
    takeover.settle(links, "of several rows of one link all but the one fetched last went", len(older))
    takeover.settle(links, "URLs were written in their canonical form", len(others))


RULES = Rules(settle=(_canonical,))
