"""The arguments of `record(...)`, checked before anything runs."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from persist.chat.recording.pending import Entry
from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_body, check_choice, check_label
from persist.db.values.json import Json, JsonText, encode
from persist.errors import InvalidValue
from persist.settings import AiSdk, SaveOn


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of one recorder. An option that the caller left None has the value of the store's Settings."""

    model: Json
    model_text: JsonText | None
    agent: str | None
    system_prompt: str | None
    metadata: Mapping[str, Any]
    takeover: bool
    save_on: SaveOn
    buffer_bytes: int
    buffer_ms: int
    ai_sdk: AiSdk

    @classmethod
    def of(
        cls,
        runtime: Runtime,
        *,
        model: Json,
        agent: str | None,
        system_prompt: str | None,
        metadata: Json,
        takeover: bool,
        save_on: str | None,
        buffer_bytes: int | None,
        buffer_ms: int | None,
        ai_sdk: int | None,
    ) -> "RecordOptions":
        """Check the arguments. InvalidValue names the wrong one."""
        settings = runtime.settings
        if metadata is not None and type(metadata) is not dict:
            raise InvalidValue("metadata", "expected an object.")
        encode(metadata, "metadata", runtime.limits)
        if agent is not None and not check_label("agent", agent):
            raise InvalidValue("agent", "it is empty.")
        if system_prompt is not None:
            check_body("system_prompt", system_prompt, settings.max_text_bytes)
        return cls(
            model=model,
            model_text=None if model is None else encode(model, "model", runtime.limits),
            agent=agent,
            system_prompt=system_prompt,
            metadata=metadata or {},
            takeover=bool(takeover),
            save_on=_save_on(settings.save_on if save_on is None else save_on),
            buffer_bytes=_not_negative("buffer_bytes", settings.save_buffer_bytes if buffer_bytes is None else buffer_bytes),
            buffer_ms=_not_negative("buffer_ms", settings.save_buffer_ms if buffer_ms is None else buffer_ms),
            ai_sdk=settings.ai_sdk if ai_sdk is None else AiSdk.of(ai_sdk),
        )

    @property
    def buffered(self) -> bool:
        """Whether text may be buffered in memory before it is written."""
        return self.buffer_bytes > 0 or self.buffer_ms > 0

    @property
    def traced(self) -> Mapping[str, Any]:
        """What a tracer is told: who answers, and how it is saved. Nothing of it is content."""
        model = self.model if isinstance(self.model, dict) else {}
        return {
            "agent": self.agent,
            "provider": model.get("provider_id"),
            "model": model.get("model_id"),
            "save_on": self.save_on.value,
        }

    def due_now(self, entries: Sequence[Entry], waiting: int) -> bool:
        """Whether to write these chunks at once; `waiting` is the bytes of text already buffered."""
        boundaries = {entry.change.boundary for entry in entries}
        if "finish" in boundaries or "abort" in boundaries or any(entry.change.error_text is not None for entry in entries):
            return True
        if self.save_on == SaveOn.STEP:
            return "step" in boundaries
        if self.save_on == SaveOn.TURN:
            return False
        if not self.buffered or any(entry.change.delta is None for entry in entries):
            return True
        return 0 < self.buffer_bytes <= waiting + sum(entry.size for entry in entries)


def _save_on(value: str) -> SaveOn:
    return check_choice("save_on", value, SaveOn)


def _not_negative(path: str, value: object) -> int:
    if type(value) is not int or value < 0:
        raise InvalidValue(path, "expected a whole number, 0 or more.")
    return value


def digest_of(prompt: str) -> str:
    """sha256 of the prompt's UTF-8 text, in hex."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
