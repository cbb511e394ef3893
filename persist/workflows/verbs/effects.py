"""Side effects: what a run does to the world outside, each remembered under a key, so that a crash does not repeat it."""

import hashlib
import json
from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import null, select, update

from persist.db.expressions.upsert import insert_missing
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice, must_exist, optional_count
from persist.db.values.json import Json, decode
from persist.errors import Conflict, named
from persist.workflows.models import effects
from persist.workflows.schemas import Effect, EffectState, Lease
from persist.workflows.storage.run_rows import get_run, held_run

List = list
_F = effects.c
_EFFECT = Values(Effect, effects)
_named = (_F.run_id == param("row_run_id"), _F.key == param("row_key"))
_INSERT = Statement(insert_missing(effects, "run_id", "key").returning(*_EFFECT.columns))
_LOCK = Statement(select(*_EFFECT.columns, _F.input_digest).where(*_named).with_for_update())
_GET = Statement(select(*_EFFECT.columns).where(*_named))
_OF_RUN = Statement(select(*_EFFECT.columns).where(_F.run_id == param("row_run_id")).order_by(_F.begun_at, _F.key))
_BEGIN_AGAIN = Statement(
    update(effects)
    .where(*_named)
    .values(state=EffectState.BEGUN, attempts=_F.attempts + 1, begun_at=param("at"), ended_at=null(), error=null())
    .returning(*_EFFECT.columns)
)
_end = update(effects).where(*_named).values(ended_at=param("at"), state=param("to"), error=param("why"), result=param("value"))
_COMPLETE = Statement(_end.where(among(_F.state, (EffectState.BEGUN, EffectState.FAILED))).returning(*_EFFECT.columns))
_failed = _end.where(_F.state == EffectState.BEGUN).returning(*_EFFECT.columns)
_FAIL = Statement(_failed)
_FAIL_ATTEMPT = Statement(_failed.where(_F.attempts == param("of_attempt")))


class Retry(StrEnum):
    """What `begin` begins anew."""

    FAILED = "failed"
    UNKNOWN = "unknown"


_BEGUN_ANEW = {Retry.FAILED: (EffectState.FAILED,), Retry.UNKNOWN: (EffectState.FAILED, EffectState.BEGUN)}


class Effects(Repository[F]):
    """`tx.workflows.effects`. `store.step` does `begin`, `complete` and `fail` around a block of code."""

    @writes
    def begin(
        self,
        run_id: str,
        key: str,
        input: Json = None,
        *,
        retry: Literal["failed", "unknown"] | None = None,
        lease: Lease | None = None,
    ) -> Effect:
        """Begin a side effect of a run, or return its known state. Do it only if the result's `state` is "begun".

        "done": it was done before, and `result` is what it returned. "failed": it failed before. "unknown": it began before, and
        nobody knows how it ended. Look at the world, then `complete` it or retry. `retry="failed"` begins anew what failed,
        `retry="unknown"` also what is unknown. `input` is any JSON value: Conflict if the key began with another one. Raises
        NotFound without the run, LeaseLost.
        """
        work = self._work
        name = work.label("key", key)
        anew = () if retry is None else _BEGUN_ANEW[check_choice("retry", retry, Retry)]
        digest = hashlib.sha256(json.dumps(decode(work.json("input", input)), sort_keys=True).encode()).hexdigest()
        run = held_run(work, run_id, lease)
        begun = {**dict.fromkeys(_EFFECT.fields), "run_id": run.id, "key": name, "input_digest": digest, "begun_at": work.now()}
        inserted = work.returned_last(_INSERT, **{**begun, "state": EffectState.BEGUN, "attempts": 1})
        if inserted is not None:
            return _EFFECT(inserted)
        *found, former_digest = _found(work, _LOCK, run.id, name)
        if former_digest != digest:
            raise Conflict(
                f"The effect {name!r} of workflow run {run.id!r} began with another input.", constraint="workflow_effects"
            )
        effect = _EFFECT(tuple(found))
        if effect.state in anew:
            again = work.returned_last(_BEGIN_AGAIN, row_run_id=run.id, row_key=name, at=work.now())
            assert again is not None  # the row is locked
            return _EFFECT(again)
        return effect.model_copy(update={"state": EffectState.UNKNOWN}) if effect.state == EffectState.BEGUN else effect

    @writes
    def complete(self, run_id: str, key: str, result: Json = None) -> Effect:
        """Remember that the effect is done, and what it returned. Nobody needs the run's lease to say so.

        Saying it again changes nothing; with another result it is Conflict. Raises NotFound if the effect never began.
        """
        work = self._work
        value = None if result is None else work.json("result", result)
        ended = self._end(_COMPLETE, run_id, key, to=EffectState.DONE, why=None, value=value)
        if ended is None:
            effect = _EFFECT(_found(work, _GET, run_id, key))
            if effect.result != result:
                raise _conflict(run_id, key, "is done already, with another result")
            return effect
        return ended

    @writes
    def fail(self, run_id: str, key: str, error: str, *, attempt: int | None = None) -> Effect:
        """Remember that the effect failed: it did not happen. Raises Conflict if it is done, NotFound if it never began.

        `attempt`: which attempt it was, by the `attempts` that `begin` returned. If another one has begun since, nothing changes.
        """
        work = self._work
        number = optional_count("attempt", attempt)
        given: dict[str, Any] = {"to": EffectState.FAILED, "why": work.body("error", error), "value": None}
        if number is None:
            ended = self._end(_FAIL, run_id, key, **given)
        else:
            ended = self._end(_FAIL_ATTEMPT, run_id, key, of_attempt=number, **given)
        if ended is not None:
            return ended
        effect = _EFFECT(_found(work, _GET, run_id, key))
        if effect.state == EffectState.DONE and number in (None, effect.attempts):
            raise _conflict(run_id, key, "is done: it has not failed")
        return effect

    @reads
    def get(self, run_id: str, key: str) -> Effect:
        """The effect as it is stored: one that never ended is "begun". Raises NotFound."""
        work = self._work
        return _EFFECT(_found(work, _GET, work.label("run_id", run_id), work.label("key", key)))

    @reads
    def list(self, run_id: str) -> List[Effect]:
        """The effects of a run, oldest first. Raises NotFound without the run."""
        work = self._work
        rows = work.rows(_OF_RUN, row_run_id=work.label("run_id", run_id))
        if not rows:
            get_run(work, run_id)
        return [_EFFECT(row) for row in rows]

    def _end(self, statement: Statement, run_id: str, key: str, **values: Any) -> Effect | None:
        work = self._work
        row = work.returned_last(
            statement, row_run_id=work.label("run_id", run_id), row_key=work.label("key", key), at=work.now(), **values
        )
        return _EFFECT.optional(row)


def _conflict(run_id: str, key: str, what: str) -> Conflict:
    return Conflict(f"The effect {named(key)} of workflow run {named(run_id)} {what}.", constraint="workflow_effects")


def _found(work: UnitOfWork, statement: Statement, run_id: str, key: str) -> Row:
    return must_exist(work.row(statement, row_run_id=run_id, row_key=key), "effect", f"{run_id}/{key}")
