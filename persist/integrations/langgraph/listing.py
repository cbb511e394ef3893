"""Listing LangGraph checkpoints, page by page."""

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from persist.framework_state.checkpoints.schemas import Checkpoint
from persist.integrations.langgraph.encoding import Encoding, History
from persist.integrations.langgraph.options import checkpoint_id, configurable, mapping, optional_limit, thread_key
from persist.store.transaction import Transaction

_PAGE = 20
"""The most checkpoints that one page loads."""

_FILTERED_PAGE = 200
"""Checkpoints that one page tests against a filter."""


class Listing:
    """A listing's conditions, and where its next page begins."""

    def __init__(
        self,
        encoding: Encoding,
        config: RunnableConfig | None,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        self._encoding, self._left = encoding, optional_limit("limit", limit)
        self._history = History(encoding)
        self._filter = None if filter is None else mapping("filter", filter)
        named = None if config in (None, {}) else configurable(config)
        self._where = {
            "thread_id": None if named is None else thread_key(config)[0],
            "namespace": None if named is None else named.get("checkpoint_ns"),
            "id": None if named is None else checkpoint_id(config),
            "before": None if before in (None, {}) else checkpoint_id(before, "before"),
        }
        self._last: Checkpoint | None = None
        self.ended = self._left is not None and self._left <= 0

    def page(self, tx: Transaction) -> list[CheckpointTuple]:
        """The next page of checkpoints."""
        page_size = _FILTERED_PAGE if self._filter else _PAGE if self._left is None else min(_PAGE, self._left)
        rows = tx.checkpoints.states.page(**self._where, after=self._last, limit=page_size)
        maximum = _PAGE if self._left is None else min(_PAGE, self._left)
        matching: list[Checkpoint] = []
        for row in rows:
            if len(matching) == maximum:
                break
            self._last = row
            if self._matches(row):
                matching.append(row)
        else:
            self.ended = len(rows) < page_size
        if self._left is not None:
            self._left -= len(matching)
            self.ended = self.ended or self._left == 0
        self._history.turn_page()
        return [self._encoding.tuple(loaded, history=self._history) for loaded in tx.checkpoints.states.load(matching)]

    def _matches(self, row: Checkpoint) -> bool:
        if not self._filter:
            return True
        known = self._encoding.metadata(row)
        return all(wanted == known.get(name) for name, wanted in self._filter.items())
