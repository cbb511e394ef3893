"""The advisory locks by which processes agree who creates, upgrades or drops a schema."""

ONE_SCHEMA = (
    "SELECT pg_advisory_xact_lock_shared(CAST(:everything AS BIGINT)), pg_advisory_xact_lock(1885696627, hashtext(:schema))"
)
"""Waits for the process that creates, upgrades or drops that schema. Other schemas of the database go on.

Releases before this statement took `everything` alone, and exclusively: they and this code wait for each other.
"""

ONE_SCHEMA_NOW = (
    "SELECT pg_try_advisory_xact_lock_shared(CAST(:everything AS BIGINT))"
    " AND pg_try_advisory_xact_lock(1885696627, hashtext(:schema))"
)
"""Takes the locks of ONE_SCHEMA, or tells that another process has one of them."""

EVERYTHING = 0x7065727369737430
"""Any constant."""
