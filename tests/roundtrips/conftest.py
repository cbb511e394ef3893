"""What no verb waits for is not counted."""

import pytest

from persist.events.first_snapshots import Settler


@pytest.fixture(autouse=True)
def unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's timer sends no notices of events: it does so on a connection of its own, beside the verbs."""
    monkeypatch.setattr(Settler, "__call__", lambda self: None)
