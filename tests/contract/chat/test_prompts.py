"""System prompts: one row for one text, named by its digest."""

import hashlib
from typing import Any

import pytest

from persist.errors import InvalidValue, NotFound
from tests.contract.chat.scenes import record, shown, text, turn
from tests.contract.conftest import Raw


@pytest.mark.parametrize("body", ["You are helpful.", "", "Ü\u2028\U0001f600", "NUL \x00 and more"])
def test_a_prompt_is_named_by_the_sha256_of_its_text(store: Any, raw: Raw, body: str) -> None:
    with store.begin() as tx:
        digest = tx.chat.prompts.put(body)
        assert tx.chat.prompts.put(body) == digest
    assert digest == hashlib.sha256(body.encode()).hexdigest()
    with store.read() as tx:
        assert tx.chat.prompts.get(digest) == body
    assert raw.count("system_prompts") == 1


def test_a_lone_half_can_be_a_prompt_too(store: Any) -> None:
    with store.begin() as tx:
        digest = tx.chat.prompts.put("half \ud83d")
        assert tx.chat.prompts.get(digest) == "half \ud83d"


def test_an_unknown_digest_is_not_found(store: Any) -> None:
    with store.read() as tx, pytest.raises(NotFound):
        tx.chat.prompts.get("0" * 64)
    with store.begin() as tx, pytest.raises(InvalidValue):
        tx.chat.prompts.put(b"bytes")


def test_the_same_prompt_of_two_turns_is_one_row_named_by_both(store: Any, raw: Raw, session: str) -> None:
    """(c) 24"""
    for _ in range(2):
        record(store, session, turn(*text("x")), system_prompt="You are helpful.")
    digest = hashlib.sha256(b"You are helpful.").hexdigest()
    assert [message["metadata"] for message in shown(store, session)] == [{"system_prompt_digest": digest}] * 2
    assert raw.rows("SELECT digest, body FROM system_prompts") == [(digest, "You are helpful.")]
