"""On Postgres narrower indexes for lists of runs and of sessions, and room on their pages: a write costs fewer bytes.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped but an index
that another one replaces, and nothing is renamed, narrowed or rebuilt; code of the previous release must run on the result. Name
no schema: env.py sets it. Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def replace(table: str, old: str, new: str, columns: list, where: str | None = None) -> None:
    op.create_index(new, table, columns, postgresql_where=None if where is None else sa.text(where))
    op.drop_index(old, table)


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE workflow_runs SET (fillfactor = 85)")
        op.execute("ALTER TABLE chat_sessions SET (fillfactor = 80)")
        latest = sa.text("started_at DESC")
        for prefix, columns in {
            "ix_workflow_runs": [],
            "ix_workflow_runs_workflow_name": ["workflow_name"],
            "ix_workflow_runs_status": ["status"],
            "ix_workflow_runs_workflow_name_status": ["workflow_name", "status"],
            "ix_workflow_runs_trigger_id": ["trigger_id"],
        }.items():
            replace("workflow_runs", f"{prefix}_newest", f"{prefix}_latest", [*columns, latest])
        unfinished = "status IN ('queued', 'running', 'paused')"
        replace(
            "workflow_runs", "idx_workflow_runs_trigger", "ix_workflow_runs_trigger_id_unfinished", ["trigger_id"], unfinished
        )
        for columns in (["workspace_root", "updated_at"], ["parent_id"], ["archived_at"]):
            name = f"ix_chat_sessions_{'_'.join(columns)}"
            replace("chat_sessions", name, f"{name}_if_any", columns, f"{columns[0]} IS NOT NULL")
    op.execute(sa.text("UPDATE _meta SET value = '0026' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
