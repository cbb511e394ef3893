"""The rights of a server's roles on the tables of persist, as SQL for those who may grant them."""

from persist.db.changes.journal import place_of
from persist.db.dialects.backends import check_schema
from persist.db.schema.base import VERSION_TABLE, table_of
from persist.db.schema.meta_table import Meta
from persist.db.values.json import encode
from persist.errors import InvalidValue
from persist.events.erasing import BLANK
from persist.events.models import event_consumers, event_heads, event_log
from persist.programs.models import raw_writes
from persist.schema.metadata import metadata
from persist.schema.subagent_roles import RoleKind, grants, role_made, subagent_grants
from persist.schema.tenant_roles import CURSORS, DIGESTED, tenant_grants, tenant_removed, tenants_apart
from persist.settings import current_settings

_MAX_NAME_BYTES = 63
_VERSIONS = (VERSION_TABLE, table_of(Meta).name)
_LOG = (event_log.name, event_heads.name, event_consumers.name)
_READ = (VERSION_TABLE, *(table.name for table in metadata.sorted_tables if table.info.get("seed") and table.name != CURSORS))
SHARED = frozenset({*_READ, *DIGESTED})
"""Tables whose rows tenants of one schema share: the revision, what every database contains, and what is found by its hash."""


def grant_script(kind: RoleKind, *, role: str | None = None, owner: str | None = None, schema: str = "persist") -> str:
    """The SQL that makes a role and grants the rights of its kind. Running it again is harmless.

    role    its name; by default persist_<kind>
    owner   the role that upgrades: the rights include the tables that it makes later. By default persist_owner
    schema  the schema of the tables

    Raises InvalidValue.
    """
    name = _checked("role", _default(kind) if role is None else role)
    upgrading = _checked("owner", _default(RoleKind.OWNER) if owner is None else owner)
    if kind is RoleKind.SUBAGENT:
        limit = current_settings().max_json_bytes
        statements = subagent_grants(name, check_schema(schema), made=role_made(name), max_text_bytes=limit)
        return "\n".join(["BEGIN;", *statements, "COMMIT;", ""])
    statements = grants(kind, name, owner=upgrading, schema=check_schema(schema), versions=_VERSIONS, log=_LOG)
    return "\n".join(["BEGIN;", *statements, "COMMIT;", ""])


def tenant_script(role: str, *, owner: str | None = None, schema: str = "persist") -> str:
    """The SQL after which the role, and every other role of this kind, reads and writes only the rows that it has written itself.

    The owner of the tables runs the script, and repeats it after each upgrade: an upgrade may bring tables. Raises InvalidValue.
    """
    name, upgrading = _checked("role", role), _checked("owner", _default(RoleKind.OWNER) if owner is None else owner)
    within, made = check_schema(schema), role_made(name)
    apart = [table.name for table in metadata.sorted_tables if table.name not in SHARED]
    rules = (place_of(table) for table in metadata.sorted_tables)
    streams = sorted({rule.shared for rule in rules if rule is not None})
    statements = [
        *tenant_grants(name, owner=upgrading, schema=within, made=made, apart=apart, read=_READ),
        *tenants_apart(within, apart, read=_READ, streams=streams, by_triggers=[raw_writes.name]),
    ]
    return "\n".join(["BEGIN;", *statements, "COMMIT;", ""])


def tenant_removal_script(role: str, *, schema: str = "persist") -> str:
    """The SQL that deletes all rows of a tenant, so that a later owner of the role's name sees none. The role may be gone.

    The owner of the tables runs it. Events keep their numbers, and lose what they said. Raises InvalidValue.
    """
    tables = [table.name for table in reversed(metadata.sorted_tables) if table.name not in SHARED]
    statements = tenant_removed(_checked("role", role), check_schema(schema), children_first=tables, blank=encode(BLANK, "data"))
    return "\n".join(["BEGIN;", *statements, "COMMIT;", ""])


def _default(kind: RoleKind) -> str:
    return f"persist_{kind.replace('-', '_')}"


def _checked(path: str, name: object) -> str:
    if not isinstance(name, str) or not name or not name.isprintable() or len(name.encode()) > _MAX_NAME_BYTES:
        raise InvalidValue(path, f"expected the name of a role: printable, of at most {_MAX_NAME_BYTES} bytes.")
    return name
