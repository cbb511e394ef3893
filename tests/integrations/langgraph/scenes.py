"""Checkpoints to put, how they are put, and what of a checkpoint can be compared with that of another saver."""

import json
from collections.abc import Callable
from typing import Any, cast

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple

from persist.integrations.langgraph import PersistSaver

CONTENT = "what somebody said, at some length " * 4
ONE, EACH, NAMED, METHOD, OLD_MODEL, MODEL = range(6)
"""How LangGraph's serializer writes an object: what its class is called with."""


def config(thread: str = "t", namespace: str = "", id: str | None = None) -> RunnableConfig:
    named = {"thread_id": thread, "checkpoint_ns": namespace} | ({} if id is None else {"checkpoint_id": id})
    return {"configurable": named}


def checkpoint(id: str, values: dict[str, Any] | None = None, versions: dict[str, Any] | None = None) -> Checkpoint:
    given = values or {}
    return cast(
        Checkpoint,
        {
            "v": 4,
            "id": id,
            "ts": "2026-01-02T03:04:05+00:00",
            "channel_values": given,
            "channel_versions": versions if versions is not None else dict.fromkeys(given, 1),
            "versions_seen": {"node": dict.fromkeys(given, 1)},
            "updated_channels": sorted(given),
        },
    )


def metadata(**more: Any) -> CheckpointMetadata:
    return cast(CheckpointMetadata, {"source": "loop", "step": 1, "parents": {}, **more})


def messages(count: int) -> list[dict[str, str]]:
    """A list that is long enough to be kept by its elements."""
    return [{"role": "user", "content": f"{number} {CONTENT}"} for number in range(count)]


def seen(found: CheckpointTuple | None) -> Any:
    """Everything of a checkpoint, without what differs by design: the NULs of metadata."""
    if found is None:
        return None
    return {
        "config": found.config["configurable"],
        "checkpoint": found.checkpoint,
        "metadata": found.metadata,
        "parent": found.parent_config and found.parent_config["configurable"],
        "writes": found.pending_writes,
    }


def stored(form: int, *parts: Any) -> tuple[str, bytes]:
    """An object as the serializer writes it: a module, a name in it, and what that is called with."""
    return "msgpack", ormsgpack.packb(ormsgpack.Ext(form, ormsgpack.packb(parts)))


def as_json(value: Any) -> tuple[str, bytes]:
    return "json", json.dumps(value).encode()


def lc(version: int, *id: str, **more: Any) -> dict[str, Any]:
    """An object as LangChain's JSON has it."""
    return {"lc": version, "type": "constructor", "id": list(id), **more}


class Reversed:
    """A cipher for nobody's secrets."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


def put(call: Callable[..., Any], saver: PersistSaver, id: str, values: dict[str, Any] | None = None, **more: Any) -> None:
    given = values or {}
    versions = more.pop("versions", None) or dict.fromkeys(given, id)
    parent, thread, namespace = more.pop("parent", None), more.pop("thread", "t"), more.pop("namespace", "")
    call(saver.put, config(thread, namespace, parent), checkpoint(id, given, versions), metadata(**more), versions)
