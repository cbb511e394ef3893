"""Takes in the file of one subagent that is not trusted: what it may bind is bound, and the rest is refused, row by row.

Every check comes before the first write of its row, so that a refused row has written nothing.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.errors import InvalidValue
from persist.programs.schemas import FIXED, Binding, RefusedRow, Subagent, TakenIn, TakenRow
from persist.programs.storage import attachments
from persist.programs.storage.binding_rows import find_row, put
from persist.programs.storage.lent_files import LentFolder
from persist.programs.storage.lent_rows import LentBinding, checked_binding, digest, no_text, shown_name
from persist.programs.storage.scopes import BINDING
from persist.programs.verbs.agents import Agents

_KIND = BINDING.fields.index("kind")
Outcome = tuple[str | None, str | None]
"""The name that a row has in the report, and why the row is refused; None if it was taken."""


def lent_again(one: Binding) -> str:
    """The digest of a lent value: a row of the file that still has it was not written by the subagent."""
    return digest(one.kind, one.value, one.source_statement)


def take_in_file(work: UnitOfWork, home: Path, subagent: Subagent, lent: Mapping[str, Any]) -> TakenIn:
    """Bind, remember and add what the file says and the subagent may; the rest is refused. A bad file is refused as a whole."""
    folder = LentFolder(home, subagent, work.runtime.settings.max_text_bytes)
    try:
        rows = folder.rows()
    except InvalidValue as error:
        refused = RefusedRow(subagent_id=subagent.id, table=None, name=None, reason=error.reason)
        return TakenIn(taken=[], refused=[refused])
    taking = _Taking(work, folder, subagent, lent)
    found = TakenIn(taken=[], refused=[])
    for table, take in (("bindings", taking.binding), ("agents", taking.memory), ("agent_segments", taking.segment)):
        for row in rows[table]:
            for name, reason in take(row):
                if reason is None:
                    found.taken.append(TakenRow(subagent_id=subagent.id, table=table, name=str(name)))
                else:
                    found.refused.append(RefusedRow(subagent_id=subagent.id, table=table, name=name, reason=reason))
    return found


class _Taking:
    """One file's rows, table by table. A method yields nothing for a row that is as it was lent."""

    def __init__(self, work: UnitOfWork, folder: LentFolder, subagent: Subagent, lent: Mapping[str, Any]) -> None:
        self._work, self._folder, self._subagent, self._lent = work, folder, subagent, lent
        self._agents = Agents(work)

    def binding(self, row: tuple[Any, ...]) -> Iterator[Outcome]:
        found = checked_binding(row, self._subagent.execution_id)
        if isinstance(found, str):
            yield shown_name(row[1]), found
            return
        lent = dict(self._lent.get("bindings") or {}).get(found.name)
        if found.attachment_path is None and lent == digest(found.kind, found.value, found.source_statement):
            return
        yield found.name, self._bind(found)

    def _bind(self, found: LentBinding) -> str | None:
        work, run_id, frame = self._work, self._subagent.run_id, self._subagent.execution_id
        before = find_row(work, run_id, found.name, frame, lock=True)
        if before is not None and any(map(is_unreadable, before)):
            return "the value that it would replace cannot be read."
        if before is not None and before[_KIND] in FIXED:
            return "it is bound already, as something that is bound once."
        try:
            for column, text in (("value", found.value), ("source_statement", found.source_statement)):
                if text is not None:
                    work.body(column, text)
            content, value = self._content(found)
        except InvalidValue as error:
            return f"{error.path}: {error.reason}"
        put(
            work,
            run_id,
            found.name,
            frame,
            value,
            before,
            kind=found.kind,
            source_statement=found.source_statement,
            content=None if content is None else [content],
        )
        return None

    def _content(self, found: LentBinding) -> tuple[bytes | None, str | None]:
        """What becomes an attachment of the run, and what stays in the row. Raises InvalidValue."""
        work, value = self._work, found.value
        if found.attachment_path is not None:
            content = self._folder.attachment(found.attachment_path)
            if self._has_folder():
                attachments.check_inline(work, value or "")
                return content, value
            try:
                value = content.decode("utf-8")
            except UnicodeDecodeError:
                raise InvalidValue("attachment_path", "it is not text in UTF-8, which is what a row takes.") from None
        elif value is not None and attachments.is_large(work, value) and self._has_folder():
            return value.encode("utf-8"), None
        attachments.check_inline(work, value or "")
        return None, value

    def _has_folder(self) -> bool:
        return attachments.folder_of(self._work, self._subagent.run_id) is not None

    def memory(self, row: tuple[Any, ...]) -> Iterator[Outcome]:
        scope, name, memory = row
        reason = self._not_mine(scope, name) or ("it has no memory." if memory is None else no_text(memory))
        if reason is None and digest(memory) == self._lent.get("memory"):
            return
        if memory is None and self._lent.get("memory") == digest(None):
            return
        if reason is None:
            reason = self._over(memory=memory)
        if reason is None:
            self._agents.remember(self._subagent.run_id, name, memory)
        yield shown_name(name), reason

    def segment(self, row: tuple[Any, ...]) -> Iterator[Outcome]:
        scope, name, prompt, summary = row
        reason = self._not_mine(scope, name) or no_text(prompt) or no_text(summary)
        if reason is None:
            reason = self._over(prompt=prompt or "", summary=summary or "")
        if reason is None:
            self._agents.add_segment(self._subagent.run_id, name, prompt=prompt or "", summary=summary or "")
        yield shown_name(name), reason

    def _not_mine(self, scope: Any, name: Any) -> str | None:
        if scope != "":
            return "it is not a row of this run."
        if type(name) is not str or name != self._subagent.agent_name:
            return "it is of an agent that is not the subagent's."
        if self._agents.recall(self._subagent.run_id, name) is None:
            return "the agent is not there any more."
        return None

    def _over(self, **texts: str) -> str | None:
        try:
            for column, text in texts.items():
                self._work.body(column, text)
        except InvalidValue as error:
            return f"{error.path}: {error.reason}"
        return None
