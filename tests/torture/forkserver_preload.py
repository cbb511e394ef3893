"""Imported by the server that victims are forked from: all that they need is loaded, nothing is open and no thread runs."""

from alembic import command, context

from persist import Store
from persist.maintenance import adopt, backup, doctor, export
from persist.programs import create_run_file
from persist.schema.migrate import upgrade
from persist.sessionlog import SessionLogWriter
from tests.torture import forking, logs, opening, operations, recording, runfiles, scripted
from tests.torture import many_processes as crowd

with Store.open("sqlite:///:memory:") as store, store.begin() as tx:
    # Each name loads its domain; persist imports nothing before it is used.
    LOADED = (tx.chat, tx.workflows, tx.messaging, tx.conversations, tx.telemetry, tx.programs, tx.checkpoints)
    AGENTS = (tx.agent_tasks, tx.app_sessions, tx.histories, tx.replay_streams, tx.transcripts)
    AS_WELL = (command, context, adopt, backup, doctor, export, upgrade, create_run_file, SessionLogWriter)
    SCENARIOS = (crowd, forking, logs, opening, operations, recording, runfiles, scripted)
