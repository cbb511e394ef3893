"""Names of tenants: what is one, and what is refused, before any server is asked."""

import pytest

from persist.db.dialects.postgres.shared_pool import channel
from persist.errors import InvalidValue
from persist.tenants.placing import check_tenant

GOOD = ("a", "acme", "acme_2", "a" * 63, "con_1", "select", "user", "com10", "publicity")
BAD = (
    "",
    "a" * 64,
    "2acme",
    "_acme",
    "Acme",
    "ac-me",
    "acmé",
    "\uff41cme",
    "\u0430cme",
    "a b",
    "a.b",
    "../a",
    "a/b",
    "a\\b",
    "a\0",
    "a\n",
    'a"',
    "a'; --",
    "public",
    "information_schema",
    "pg_acme",
    "persist",
    "persist_tenants",
    "citus",
    "con",
    "nul",
    "com1",
    "lpt9",
)


def test_names_that_mean_one_tenant_everywhere() -> None:
    assert [check_tenant(name) for name in GOOD] == list(GOOD)


def test_other_names_are_refused_with_the_reason() -> None:
    for name in BAD:
        with pytest.raises(InvalidValue, match="tenant"):
            check_tenant(name)
    for value in (None, 7, b"acme", ["acme"]):
        with pytest.raises(InvalidValue, match="not text"):
            check_tenant(value)


def test_two_tenants_never_share_a_channel_of_notifications() -> None:
    names = ["a" * 63, "a" * 62 + "b", "a" * 62, "a" * 49, "a" * 48, "acme"]
    channels = {channel(name, topic) for name in names for topic in ("events", "turns", "runs")}
    assert len(channels) == 3 * len(names)
    assert all(len(found) <= 63 for found in channels)
    assert channel("acme") == "persist_events_acme"
