"""The store of a tenant keeps the contracts of any store: turns of chat, over a tenant's store."""

from tests.contract.chat.test_turns import *  # noqa: F403  # its tests, with the fixtures of this folder
