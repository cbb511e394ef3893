"""Converting LangGraph's checkpoints to those of persist, and back."""

import builtins
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from persist.db.values.json import check
from persist.errors import InvalidValue, StoreCorrupt
from persist.framework_state.checkpoints.schemas import Blob, ChannelHistory, Loaded, Stored, Write
from persist.framework_state.checkpoints.schemas import Checkpoint as Row
from persist.framework_state.checkpoints.values import Addition, KnownList
from persist.integrations.langgraph.kept_lists import PACKED as _PACKED
from persist.integrations.langgraph.kept_lists import (
    CheckpointPut,
    Fingerprint,
    Fingerprinting,
    KeptList,
    KnownValues,
    ListMemory,
    ThreadKey,
    Versions,
    array_header,
    check_text,
    content,
    version_of,
)
from persist.integrations.langgraph.options import checkpoint_id, mapping, versions
from persist.integrations.langgraph.strict import StrictSerializer

LONG_ENOUGH = 512
"""Lists of at least this many bytes are stored element by element."""
DELTAS = "counters_since_delta_snapshot"
Read = dict[Blob, Any]
"""What stored bytes were deserialized to."""
_OWN = (dict, list, set)
_ATOMS = (str, int, float, bool, bytes, type(None))


class Encoding:
    """Encodes and decodes checkpoints, values and writes with a serializer. `most`: bytes of memory for lists."""

    def __init__(self, serde: SerializerProtocol, most: int = 0) -> None:
        self.serde = self._serde = serde
        # split only for JsonPlus: other serializers may not accept single elements, and encrypted ones never recur
        self._splits = isinstance(serde, JsonPlusSerializer)
        self._joins = type(serde) in (JsonPlusSerializer, StrictSerializer)
        self.lists = ListMemory(serde, most) if self._joins and most else None
        """Lists that need not be read or serialized again, where the serializer is one whose work is known."""
        inner = serde.serde if isinstance(serde, EncryptedSerializer) else serde
        self._replaces = isinstance(inner, JsonPlusSerializer)

    def put(
        self,
        thread_key: ThreadKey,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        known: KnownValues,
    ) -> CheckpointPut:
        """A checkpoint to store, serialized. A value that is not new is left out if `known` has its version."""
        head: dict[str, Any] = dict(mapping("checkpoint", checkpoint))
        if "id" not in head:
            raise InvalidValue("checkpoint.id", "it is missing.")
        given = mapping("checkpoint.channel_values", head.pop("channel_values", None) or {})
        at = versions("checkpoint.channel_versions", head.pop("channel_versions", None) or {})
        mapping("metadata", metadata)
        merged = all_metadata(config, metadata)
        plain = {name: value for name, value in merged.items() if _is_plain({name: value})}
        not_json = {name: value for name, value in merged.items() if name not in plain}
        run_id = merged.get("run_id")
        new = versions("new_versions", new_versions)
        # if the caller names new versions, an unchanged version means an unchanged value
        kept = known.versions if new else {}
        unchanged = {channel: at[channel] for channel in given if channel in at and at[channel] == kept.get(channel)}
        known_versions = unchanged | {
            channel: version for channel, version in new.items() if channel in given and at.get(channel) == version
        }
        carried = {channel: self.value(channel, value) for channel, value in given.items() if channel not in known_versions}
        fingerprints: dict[str, Fingerprint | None] = {}
        values: dict[str, builtins.tuple[str, Stored | Addition | None]] = {}
        for channel, version in new.items():
            value = given.get(channel)
            if channel not in given:
                values[channel] = version, None
            elif self.lists is None or type(value) is not list or len(value) < 2:
                values[channel] = version, self.value(channel, value)
            else:
                base = None if carried else known.lists.get(channel)
                stored, fingerprints[channel] = self._list(channel, value, base, known.fingerprints.get(channel))
                values[channel] = version, stored
        arguments = {
            "head": self.blob("checkpoint", (head, not_json) if not_json else (head,)),
            "parent_id": checkpoint_id(config),
            "run_id": run_id if isinstance(run_id, str) else None,
            "metadata": plain,
            "versions": at,
            "partial": [channel for channel in merged.get(DELTAS) or () if channel not in given],
        }
        relies_on = {channel: version for channel, version in unchanged.items() if channel not in new}
        versions_of = Versions(known_versions, relies_on)
        return CheckpointPut(thread_key, checkpoint["id"], arguments, values, carried, versions_of, known, fingerprints)

    def _list(
        self, name: str, value: list[Any], base: KnownList | None, of_base: Fingerprint | None
    ) -> builtins.tuple[Stored | Addition, Fingerprint | None]:
        """A list and its fingerprint, if it has one. Only what was added is serialized if it begins with a list like `base`."""
        kept = 0 if base is None or of_base is None else of_base.length
        made = Fingerprinting()
        if not (kept and kept <= len(value) and made.add(content(value[:kept]), kept) and made.fingerprint == of_base):
            kept, made = 0, Fingerprinting()
        new = value[kept:]
        seen = content(new)
        pieces = [self.blob(name, element) for element in new]
        # another thread may have changed an element since: then it is not known which state was serialized
        known = seen is not None and seen == content(new) and made.add(seen, len(new))
        if kept and base is not None:
            return Addition(base, pieces), made.fingerprint if known else None
        if sum(len(piece.data) for piece in pieces) < LONG_ENOUGH:
            return self.blob(name, value), None
        return pieces, made.fingerprint if known else None

    def writes(self, writes: Sequence[tuple[str, Any]]) -> list[Write]:
        """A task's writes, serialized. Of several to the same special channel the last."""
        found = {}
        for number, (channel, value) in enumerate(writes):
            idx = WRITES_IDX_MAP.get(channel, number)
            found[idx] = Write(idx, channel, self.blob(channel, value))
        return list(found.values())

    def blob(self, name: str, value: Any) -> Blob:
        """Any value as one Blob. Raises InvalidValue, a ValueError, for text that the serializer would change."""
        kind, data = self._serde.dumps_typed(value)
        # a lone surrogate becomes a question mark; encrypted bytes do not show it, so those are always checked
        if self._replaces and (b"?" in data if kind == _PACKED else kind.startswith(_PACKED)):
            check_text(name, value)
        return Blob(kind, bytes(data))

    def value(self, name: str, value: Any) -> Stored:
        """The value of a channel: a long list as one Blob for each element."""
        if type(value) is list and len(value) > 1 and self._splits:
            pieces = [self.blob(name, element) for element in value]
            if sum(len(piece.data) for piece in pieces) >= LONG_ENOUGH:
                return pieces
        return self.blob(name, value)

    def tuple(self, loaded: Loaded, config: RunnableConfig | None = None, history: "History | None" = None) -> CheckpointTuple:
        """The CheckpointTuple of a stored checkpoint; `history` shares values. Raises StoreCorrupt if it is damaged."""
        row = loaded.checkpoint
        head, metadata = self._head(row)
        read = self.read if history is None else history.read
        values = {channel: read(stored) for channel, stored in loaded.values.items()}
        try:
            all_versions = {channel: version_of(version) for channel, version in row.versions.items()}
        except ValueError:
            raise _damaged(row) from None
        versions = {channel: version for channel, (from_runner, version) in all_versions.items() if from_runner}
        return CheckpointTuple(
            config=config or config_of(row, row.id),
            checkpoint=cast(Checkpoint, {**head, "channel_versions": versions, "channel_values": values}),
            metadata=cast(CheckpointMetadata, metadata),
            parent_config=config_of(row, row.parent_id) if row.parent_id else None,
            pending_writes=[(write.task_id, write.channel, self.read(write.value)) for write in loaded.writes],
        )

    def metadata(self, row: Row) -> Mapping[str, Any]:
        return self._head(row)[1]

    def _head(self, row: Row) -> builtins.tuple[Mapping[str, Any], Mapping[str, Any]]:
        """(the checkpoint without values and versions, its metadata). Raises StoreCorrupt for anything else."""
        found = self.read(row.head)
        parts = [*found, row.metadata] if isinstance(found, list | builtins.tuple) else []
        if not 2 <= len(parts) <= 3 or not all(isinstance(part, Mapping) for part in parts):
            raise _damaged(row)
        head, *metadata = parts
        return head, {**metadata[-1], **metadata[0]}

    def history(self, found: ChannelHistory) -> DeltaChannelHistory:
        writes: list[PendingWrite] = [(write.task_id, write.channel, self.read(write.value)) for write in found.writes]
        if found.seed is None:
            return DeltaChannelHistory(writes=writes)
        return DeltaChannelHistory(writes=writes, seed=self.read(found.seed))

    def read(self, stored: Stored) -> Any:
        if isinstance(stored, KeptList) and self.lists is not None:
            return self.lists.elements(stored)
        if isinstance(stored, Blob):
            return self._serde.loads_typed((stored.kind, stored.data))
        if self._joins and all(piece.kind == _PACKED for piece in stored):
            # joined to one array, as the serializer writes a list: one call reads it
            return self._serde.loads_typed((_PACKED, array_header(len(stored)) + b"".join(piece.data for piece in stored)))
        return [self._serde.loads_typed((piece.kind, piece.data)) for piece in stored]


class History:
    """Values of the checkpoints in a list, each deserialized once; only lists, dictionaries and sets are each one's own."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._read: Read = {}
        self._before: Read = {}

    def turn_page(self) -> None:
        """Forget what the page before the last one had and the last one did not."""
        self._before, self._read = self._read, {}

    def read(self, stored: Stored) -> Any:
        """A value, of which the list or dictionary itself is new."""
        if not isinstance(stored, Blob):
            return self._elements(stored)
        found = self._known(stored)
        if found is None:
            found = self._encoding.read(stored)
            if type(found) in _OWN:
                self._read[stored] = found
        return found.copy() if type(found) in _OWN else found

    def _elements(self, pieces: Sequence[Blob]) -> list[Any]:
        found = [self._known(piece) for piece in pieces]
        missing = [index for index, value in enumerate(found) if value is None]
        if missing:
            for index, value in zip(missing, self._encoding.read([pieces[index] for index in missing]), strict=True):
                found[index] = self._read[pieces[index]] = value
        if len(set(map(id, found))) < len(found):  # equal elements of one list are objects of their own
            seen: set[int] = set()
            for index, value in enumerate(found):
                if id(value) in seen and type(value) not in _ATOMS:
                    found[index] = self._encoding.read(pieces[index])
                seen.add(id(value))
        return found

    def _known(self, stored: Blob) -> Any:
        """The value that was read from these bytes for this page or the page before; None without one."""
        found = self._read.get(stored)
        if found is None and (found := self._before.get(stored)) is not None:
            self._read[stored] = found
        return found


def _damaged(row: Row) -> StoreCorrupt:
    return StoreCorrupt(f"thread {row.thread_id!r}", f"the checkpoint {row.id!r} is none of LangGraph's.")


def config_of(row: Row, checkpoint_id: str) -> RunnableConfig:
    """The config of a checkpoint in the row's thread and namespace."""
    return {"configurable": {"thread_id": row.thread_id, "checkpoint_ns": row.namespace, "checkpoint_id": checkpoint_id}}


def all_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """The metadata LangGraph keeps of metadata and config, but with the NULs in texts that LangGraph strips."""
    known = dict(get_checkpoint_metadata(config, metadata))
    for source in (config.get("configurable"), config.get("metadata"), metadata):
        texts = {name: value for name, value in (source or {}).items() if name in known and isinstance(value, str)}
        known |= texts
    return known


def _is_plain(value: Any) -> bool:
    try:
        check(value, "metadata")
    except InvalidValue:
        return False
    return True
