"""Imported by the server that victims are forked from: all that they need is loaded, nothing is open and no thread runs."""

from persist.maintenance import adopt, backup, doctor, export
from persist.sessionlog import SessionLogWriter
from persist.store import Store
from tests.torture import crowd, recording, scripted

with Store.open("sqlite:///:memory:") as store, store.begin() as tx:
    # Each name loads its domain; persist imports nothing before it is used.
    LOADED = (tx.chat, tx.workflows, tx.messaging, tx.conversations, tx.telemetry, tx.programs, tx.checkpoints)
    AS_WELL = (adopt, backup, doctor, export, SessionLogWriter, recording.SCENARIOS, scripted.SCENARIOS, crowd.SCENARIOS)
