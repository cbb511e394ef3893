"""Settings: what the environment (PERSIST_*) or the caller decides. Every byte limit is in bytes of UTF-8."""

import os
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from persist.errors import InvalidValue, shown

_PREFIX = "PERSIST_"
_MAX_ACTOR = 600
_MAX_DAYS = 365_000  # a thousand years; more has no beginning that a datetime could hold


class SaveOn(StrEnum):
    """When a recorder makes the stream durable: at every chunk, at finish-step, or at finish."""

    CHUNK = "chunk"
    STEP = "step"
    TURN = "turn"


class AiSdk(IntEnum):
    """The major release of the AI SDK whose reading of a stream is recorded where two releases differ."""

    V6 = 6
    V7 = 7

    @classmethod
    def of(cls, value: object) -> "AiSdk":
        """The major of that number. InvalidValue: it is none."""
        if isinstance(value, int) and not isinstance(value, bool) and value in cls._value2member_map_:
            return cls(value)
        raise InvalidValue("ai_sdk", f"{shown(value)} is none of {', '.join(str(int(major)) for major in cls)}.")


class Settings(BaseSettings):
    """Read once per store; an argument of `Store.open` or `record` beats them."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="ignore")

    def __init__(self, **values: Any) -> None:
        """InvalidValue names the setting; its value, which may hold a password, is not repeated."""
        try:
            super().__init__(**values)
            return
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(str(step) for step in first["loc"])
        raise InvalidValue(f"{_PREFIX}{name.upper()}" if name not in values else name, f"{first['msg']}.")

    @field_validator("actor")
    @classmethod
    def _fits_a_label(cls, actor: str | None) -> str | None:
        try:
            fits = actor is None or ("\x00" not in actor and len(actor.encode()) <= _MAX_ACTOR)
        except UnicodeEncodeError:
            fits = False
        if not fits:
            raise ValueError(f"an actor is text of at most {_MAX_ACTOR} bytes, without NUL and lone surrogate halves")
        return actor or None

    database_url: str | None = None
    schema_name: str = Field("persist", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")
    pooler: Literal["transaction"] | None = None

    # who acts in the store, where a transaction does not say: in the log of events
    actor: str | None = None
    save_on: SaveOn = SaveOn.CHUNK
    save_buffer_bytes: int = Field(0, ge=0)
    save_buffer_ms: int = Field(0, ge=0)
    ai_sdk: AiSdk = AiSdk.V7
    # Postgres: after commits, followers of turns and idle workers in other processes are notified, at most every 20 ms
    notify_followers: bool = True
    # fold after this many bytes of unfolded text; measured: here a chunk's commit writes the least WAL. Larger values spread the
    # deltas over more pages, smaller ones fold too often
    fold_bytes: int = Field(3584, ge=1)
    fold_ms: int = Field(250, ge=1)
    max_json_bytes: int = Field(16 * 2**20, ge=1)
    max_text_bytes: int = Field(64 * 2**20, ge=1)
    # orjson stops at 254 levels
    max_json_depth: int = Field(200, ge=1, le=250)

    # one value of a run's scratch or context, or one entry of its phase history
    max_scratch_bytes: int = Field(64 * 2**10, ge=1)
    # all of a run's phase history
    max_history_bytes: int = Field(4 * 2**20, ge=1)

    # programs: a larger value of a binding goes into a file beside the run's own
    attachment_bytes: int = Field(102_400, ge=1)
    # programs: how deep executions may be nested
    max_depth: int = Field(100, ge=1)

    # rows that a window of telemetry keeps of each instance; it is trimmed on every Nth insert, by default keep // 10
    status_log_keep: int = Field(10_000, ge=1)
    status_log_trim_every: int | None = Field(None, ge=1)
    usage_samples_keep: int = Field(86_400, ge=1)
    usage_samples_trim_every: int | None = Field(None, ge=1)
    tool_history_keep: int = Field(1_000, ge=1)
    tool_history_trim_every: int | None = Field(None, ge=1)
    # calls of models that are kept of each instance, session or run; their sums by hour and day stay
    usage_calls_keep: int = Field(1_000, ge=1)
    usage_calls_trim_every: int | None = Field(None, ge=1)
    # recording a stream begins only while the budgets of the session's owner and agent are not used up
    record_within_budget: bool = False

    # where the bodies of blobs are kept instead of the database: the path of a folder, or a URL for fsspec
    blobs: Any = None
    # a file of a chat message that is larger, given as a data URL, is stored as a blob
    inline_file_bytes: int = Field(65_536, ge=0)

    # retention, off unless days are set: `maintain` prunes what is over and older, but for the newest so many
    agent_tasks_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    agent_tasks_keep_last: int = Field(0, ge=0)
    chat_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    chat_keep_last: int = Field(0, ge=0)
    app_sessions_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    app_sessions_keep_last: int = Field(0, ge=0)
    blobs_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    blobs_keep_last: int = Field(0, ge=0)
    checkpoints_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    checkpoints_keep_last: int = Field(0, ge=0)
    conversations_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    conversations_keep_last: int = Field(0, ge=0)
    # what was sent in the exchange and not read goes too, wherever conversations are pruned; off: it waits for its reader
    conversations_unread_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    events_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    events_keep_last: int = Field(0, ge=0)
    histories_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    histories_keep_last: int = Field(0, ge=0)
    messaging_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    messaging_keep_last: int = Field(0, ge=0)
    programs_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    programs_keep_last: int = Field(0, ge=0)
    replay_streams_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    replay_streams_keep_last: int = Field(0, ge=0)
    telemetry_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    telemetry_keep_last: int = Field(0, ge=0)
    transcripts_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    transcripts_keep_last: int = Field(0, ge=0)
    usage_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    usage_keep_last: int = Field(0, ge=0)
    workflows_keep_days: float | None = Field(None, gt=0, le=_MAX_DAYS)
    workflows_keep_last: int = Field(0, ge=0)

    # the values in records of the logger persist.statements, which shows statements without them
    log_statement_values: bool = False

    # what reports of erasures are signed with
    report_key: SecretStr | None = Field(None, min_length=1)

    # "full": a commit on a file returns when the disk has it, so that a loss of power takes nothing either
    synchronous: Literal["normal", "full"] = "normal"
    wal_autocheckpoint: int = Field(1000, ge=0)
    # how long a transaction waits for a file that another process is writing; below 2 s there still are five attempts, within 2 s
    busy_timeout_ms: int = Field(5000, ge=0)


def current_settings() -> Settings:
    """What the environment says now; read anew only where it says something else than the last time."""
    return _settings_of(tuple(sorted((name, os.environ[name]) for name in os.environ if name.upper().startswith(_PREFIX))))


@lru_cache(maxsize=1)
def _settings_of(said: tuple[tuple[str, str], ...]) -> Settings:
    return Settings()
