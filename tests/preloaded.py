"""Loaded once by the process that workers are forked from: all that they need, with nothing left open and no thread running."""

import json

import psycopg
import pytest
import sqlalchemy.dialects.postgresql.psycopg as dialect

from persist import AsyncStore, Store
from persist.maintenance import prune, rebuild

with Store.open("sqlite:///:memory:") as store, store.begin() as tx:
    # Each name loads its domain; persist imports nothing before it is used.
    DOMAINS = (
        tx.chat,
        tx.workflows,
        tx.messaging,
        tx.conversations,
        tx.telemetry,
        tx.programs,
        tx.checkpoints,
        tx.histories,
        tx.transcripts,
        tx.replay_streams,
        tx.agent_tasks,
        tx.events,
        tx.app_sessions,
        tx.blobs,
    )

LOADED = (json, psycopg, pytest, dialect, AsyncStore, prune, rebuild)
