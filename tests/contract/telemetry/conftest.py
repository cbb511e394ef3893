"""Whose rows the tests of telemetry mean: the file's own, or on a server those of an instance that every call names."""

import pytest


@pytest.fixture
def me(backend: str) -> dict[str, str]:
    """What a call adds to mean one instance."""
    return {} if backend == "sqlite" else {"instance_id": "box"}


@pytest.fixture
def here(backend: str) -> dict[str, str]:
    """What a call adds to mean one workspace."""
    return {} if backend == "sqlite" else {"workspace_id": "ws"}
