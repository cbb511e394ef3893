"""The SQL that makes a role of Postgres for a tenant of a schema that tenants share, and keeps the rows of tenants apart.

A role gets rights to each table by itself. A role reads every shared row, adds a row whose content has its digest, and raises
counters; it makes no other change to a shared row. Rows of other tables belong to the writing role.
"""

from collections.abc import Sequence

from persist.db.dialects.postgres.event_guards import NUMBERS as NUMBERS_EVENTS
from persist.db.dialects.postgres.event_guards import SETTING as KEEPS_EVENTS
from persist.db.dialects.postgres.raw_writes import OUTER_ROLE
from persist.db.schema.row_guards import SETTING as WRITES
from persist.db.values.escaping import body, literal, quoted
from persist.schema.subagent_roles import OPEN_POLICY, TENANT_COLUMN, TENANT_POLICY, refuse_cluster, unmeasured

PROMPTS, BLOBS, PIECES = "system_prompts", "blobs", "blob_pieces"
HEADS, EVENTS, CURSORS = "event_heads", "event_log", "exchange_cursors"
DIGESTED = (PROMPTS, BLOBS, PIECES)
"""The tables whose rows all tenants find by the digest of their content."""
_PUT_AGAIN = "put_at, complete, named, outside, body"
"""What another put of the same bytes changes in the row of a blob."""
_PIECE = 2**20
_MOST = 1_000_000
"""By how much one statement of a tenant may move a count that tenants share."""
_OWN = f"{TENANT_COLUMN} = current_user"
_KEEPER = "persist_tenants_share"
"""The function that refuses a tenant what would change a shared row for the others."""
_TAKER = "persist_tenants_take_head"
"""The function that gives a removed tenant's stream to its next writer, who continues its numbers."""
_NOBODY = ""
"""The role of such a head: no role has this name."""
_COMMANDS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_TOLD = "key NOT LIKE 'erasure:%'"
"""The rows of `_meta` that tenants read: what is going to be erased names people."""
_SHORT_BODY = 2**14
Rules = dict[str, str]
"""The conditions of a policy, by the command that it is for; "ALL" for every command."""


def tenant_grants(role: str, *, owner: str, schema: str, made: str, apart: Sequence[str], read: Sequence[str]) -> list[str]:
    """The statements that make the role and leave it the rights alone that a tenant has, also where it had more.

    made   the statement that makes the role
    apart  the tables whose rows are kept apart
    read   the tables that tenants only read
    """
    to, of, where = quoted(role), quoted(owner), quoted(schema)

    def named(tables: Sequence[str]) -> str:
        return ", ".join(f"{where}.{quoted(table)}" for table in tables)

    later = f"ALTER DEFAULT PRIVILEGES FOR ROLE {of} IN SCHEMA {where} REVOKE ALL ON"
    return [
        refuse_cluster("a tenant has a schema of its own there"),
        _unclaimed(role, schema),
        made,
        *(f"REVOKE ALL ON ALL {kind} IN SCHEMA {where} FROM {to};" for kind in ("TABLES", "SEQUENCES")),
        *(f"{later} {kind} FROM {to};" for kind in ("TABLES", "SEQUENCES")),
        f"GRANT USAGE ON SCHEMA {where} TO {to};",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {where} TO {to};",  # UPDATE would let it set them back
        f"GRANT SELECT ON {named(read)} TO {to};",
        f"GRANT SELECT, INSERT ON {named(DIGESTED)} TO {to};",
        f"GRANT UPDATE ({_PUT_AGAIN}) ON {named([BLOBS])} TO {to};",
        f"GRANT UPDATE (body) ON {named([PIECES])} TO {to};",  # a piece is added unless it is there; no policy lets it change
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {named(apart)} TO {to};",
    ]


def _unclaimed(role: str, schema: str) -> str:
    """Refuse to make a role anew while rows of its name are there, which it would see: it reads whole tables, so it is first."""
    name, where = literal(role), literal(schema)
    noted = (
        "SELECT c.relname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid"
        f" JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {where}"
        f" AND c.relkind = 'r' AND a.attname = '{TENANT_COLUMN}' AND NOT a.attisdropped ORDER BY c.relname"
    )
    message = (
        "rows of a former tenant % are still there, in the table %: a role of this name would see them. "
        "`persist grants --tenant NAME --remove` deletes them"
    )
    refuse = (
        "DECLARE one record; has_rows boolean; BEGIN"
        f" IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {name}) THEN"
        f" FOR one IN {noted} LOOP"
        f" EXECUTE format('SELECT EXISTS (SELECT FROM %I.%I WHERE {TENANT_COLUMN} = $1)', {where}, one.relname)"
        f" INTO has_rows USING CAST({name} AS name);"
        f" IF has_rows THEN RAISE EXCEPTION '{message}', {name}, one.relname; END IF;"
        " END LOOP; END IF; END"
    )
    return f"DO {body(refuse)};"


def tenant_removed(role: str, schema: str, *, children_first: Sequence[str], blank: str) -> list[str]:
    """The statements that delete the rows of a tenant, which may be gone. Events stay, without what they said, and of no tenant.

    Heads of streams wait for their next writer. The guards of raw writes let this through. `blank`: an emptied event's data.
    """
    where, its = quoted(schema), f"{TENANT_COLUMN} = {literal(role)}"
    nobodys = f"{TENANT_COLUMN} = NULL"
    staying = {
        EVENTS: f"data = {literal(blank)}, actor = NULL, {nobodys}",
        HEADS: f"{TENANT_COLUMN} = {literal(_NOBODY)}",
        CURSORS: nobodys,
    }
    return [
        *(f"SET LOCAL {setting} = 'on';" for setting in (KEEPS_EVENTS, NUMBERS_EVENTS, WRITES)),
        *(
            f"UPDATE {where}.{quoted(table)} SET {staying[table]} WHERE {its};"
            if table in staying
            else f"DELETE FROM {where}.{quoted(table)} WHERE {its};"
            for table in children_first
        ),
    ]


def tenants_apart(
    schema: str, apart: Sequence[str], *, read: Sequence[str], streams: Sequence[str], by_triggers: Sequence[str]
) -> list[str]:
    """The statements after which each role sees and writes only its own rows in the tables `apart`.

    A row notes the role that inserts it. No tenant's role sees older rows. The owner of the tables and superusers see all rows.

    read         the tables whose rows only the owner changes
    streams      the shared streams of events, for rows without a stream
    by_triggers  the tables among `apart` in which a function of the owner inserts rows for a role
    """
    where, listed = quoted(schema), ", ".join(map(literal, ("*", *streams)))
    shared = {HEADS: f"{{row}}stream_id IN ({listed})", CURSORS: "({row}owner = '' AND {row}channel = '')"}
    statements = []
    for table in apart:
        name = f"{where}.{quoted(table)}"
        writer = f"CAST({OUTER_ROLE} AS name)" if table in by_triggers else "current_user"
        statements += [
            f"ALTER TABLE {name} ADD COLUMN IF NOT EXISTS {TENANT_COLUMN} name;",
            f"ALTER TABLE {name} ALTER COLUMN {TENANT_COLUMN} SET DEFAULT {writer};",
            f"DROP POLICY IF EXISTS {OPEN_POLICY} ON {name};",
            *_policies(name, _counted(table, shared[table]) if table in shared else _own(where, table)),
        ]
    for table in read:
        statements += _policies(f"{where}.{quoted(table)}", {"SELECT": f"USING ({_TOLD if table == '_meta' else 'true'})"})
    for table, rules in _by_digest(where).items():
        statements += _policies(f"{where}.{quoted(table)}", {"SELECT": "USING (true)", **rules})
    return [*statements, *_keepers(where, shared), *_taker(where, shared[HEADS]), unmeasured(schema, apart)]


def _taker(where: str, shared: str) -> list[str]:
    """The trigger that lets a writer take the head of a stream that a removed tenant had, of which no tenant sees anything."""
    function = f"{where}.{_TAKER}()"
    take = (
        "DECLARE was bigint; first bigint; BEGIN"
        f" DELETE FROM {where}.{HEADS} h WHERE h.stream_id = NEW.stream_id AND h.{TENANT_COLUMN} = {literal(_NOBODY)}"
        " RETURNING h.seq, h.first_seq INTO was, first;"
        " IF FOUND THEN NEW.seq := NEW.seq + was; NEW.first_seq := first; END IF; RETURN NEW; END"
    )
    return [
        f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        f" SET search_path = pg_catalog, pg_temp AS {body(take)};",
        f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC;",
        f"CREATE OR REPLACE TRIGGER {_TAKER} BEFORE INSERT ON {where}.{HEADS} FOR EACH ROW"
        f" WHEN (NOT ({shared.format(row='NEW.')})) EXECUTE FUNCTION {function};",
    ]


def _policies(name: str, rules: Rules) -> list[str]:
    found = [f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY;"]
    for command in ("ALL", *_COMMANDS):
        policy = TENANT_POLICY if command == "ALL" else f"{TENANT_POLICY}_{command.lower()}"
        found.append(f"DROP POLICY IF EXISTS {policy} ON {name};")
        if command in rules:
            found.append(f"CREATE POLICY {policy} ON {name} FOR {command} {rules[command]};")
    return found


def _own(where: str, table: str) -> Rules:
    """An event counts only if its stream's head has been counted on before, which nobody does for another tenant's stream."""
    if table != EVENTS:
        return {"ALL": f"USING ({_OWN})"}
    head = f"SELECT FROM {where}.{HEADS} h WHERE h.stream_id = {EVENTS}.stream_id AND h.seq >= {EVENTS}.seq"
    return {"ALL": f"USING ({_OWN}) WITH CHECK ({_OWN} AND EXISTS ({head}))"}


def _counted(table: str, shared: str) -> Rules:
    """A tenant changes nothing in the row of all streams, where the owner says how far the positions are settled."""
    rows = shared.format(row="")
    changed = f"({_OWN} OR {rows}) AND stream_id <> '*'" if table == HEADS else f"{_OWN} OR {rows}"
    return {
        "SELECT": f"USING ({_OWN} OR {rows})",
        "INSERT": f"WITH CHECK ({_OWN})",
        "UPDATE": f"USING ({changed}) WITH CHECK ({changed})",
        "DELETE": f"USING ({_OWN} AND NOT {rows})",
    }


def _by_digest(where: str) -> dict[str, Rules]:
    """What may be added: a text and a short body that have their digest, and pieces that the body has a place for."""
    prompt = "digest = encode(sha256(convert_to(body, 'UTF8')), 'hex')"
    short = f"sha256 = encode(sha256(body), 'hex') AND size = octet_length(body) AND size <= {_SHORT_BODY}"
    blob = f"size >= 0 AND CASE WHEN body IS NOT NULL THEN {short} ELSE outside OR size > {_SHORT_BODY} END"
    piece = (
        f"position BETWEEN 0 AND {2**31} AND EXISTS (SELECT FROM {where}.{BLOBS} b WHERE b.sha256 = {PIECES}.sha256"
        f" AND b.body IS NULL AND octet_length({PIECES}.body) = least({_PIECE}, b.size - position * {_PIECE}))"
    )
    return {
        PROMPTS: {"INSERT": f"WITH CHECK ({prompt})"},
        BLOBS: {"INSERT": f"WITH CHECK ({blob})", "UPDATE": f"USING (true) WITH CHECK ({blob})"},
        PIECES: {"INSERT": f"WITH CHECK ({piece})"},
    }


def _keepers(where: str, shared: dict[str, str]) -> list[str]:
    """The triggers that compare a shared row with what it was, which a policy cannot. The owner of the tables is not held up."""
    function = f"{where}.{_KEEPER}()"
    message = "tenants share this row: it is only counted on, and never taken back"
    refuse = f"RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = '{message}';"
    statements = [
        f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp"
        f" AS {body(f'BEGIN IF row_security_active(TG_RELID) THEN {refuse} END IF; RETURN NEW; END')};"
    ]

    def trigger(table: str, event: str, condition: str) -> str:
        name = f"{_KEEPER}_{event.lower()}"
        return (
            f"CREATE OR REPLACE TRIGGER {name} BEFORE {event} ON {where}.{quoted(table)} FOR EACH ROW"
            f" WHEN ({condition}) EXECUTE FUNCTION {function};"
        )

    for table, rows in shared.items():
        everybodys = "NEW.stream_id = '*'" if table == HEADS else "false"
        rest = "NEW.first_seq <> 1 OR NOT NEW.logging OR NEW.settled IS NOT NULL" if table == HEADS else "false"
        kept = "(NEW.first_seq, NEW.logging, NEW.settled) IS DISTINCT FROM (OLD.first_seq, OLD.logging, OLD.settled)"
        moved = "NEW.stream_id <> OLD.stream_id" if table == HEADS else "(NEW.owner, NEW.channel) <> (OLD.owner, OLD.channel)"
        was, is_now = rows.format(row="OLD."), rows.format(row="NEW.")
        first = f"NEW.seq NOT BETWEEN 0 AND {_MOST} OR {rest}"
        later = f"NEW.seq - OLD.seq NOT BETWEEN 0 AND {_MOST} OR {moved} OR {everybodys}"
        statements += [
            trigger(table, "INSERT", f"{is_now} AND ({everybodys} OR {first})"),
            trigger(table, "UPDATE", f"({was} OR {is_now}) AND ({later}{f' OR {kept}' if table == HEADS else ''})"),
        ]
    taken_back = "OLD.complete AND NOT (NEW.complete AND NEW.outside = OLD.outside) OR OLD.named AND NOT NEW.named"
    return [*statements, trigger(BLOBS, "UPDATE", f"{taken_back} OR NEW.put_at < OLD.put_at")]
