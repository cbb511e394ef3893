"""The folder that session logs are written below, and files that are watched."""

from pathlib import Path

import pytest

from persist.sessionlog import writer
from tests.sessionlog.scenes import Watched


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """It does not exist yet: writers make it."""
    return tmp_path / "home"


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    """Every file that a writer opens from now on."""
    monkeypatch.setattr(Watched, "writes", [])
    monkeypatch.setattr(Watched, "takes", iter(()))

    def open_(path: Path, mode: str, buffering: int, opener: object) -> Watched:
        assert buffering == 0
        return Watched(path, mode)

    monkeypatch.setattr(writer, "open", open_, raising=False)
    return Watched
