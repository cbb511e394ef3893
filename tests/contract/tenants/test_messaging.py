"""The store of a tenant keeps the contracts of any store: sessions of messaging, over a tenant's store."""

from tests.contract.messaging.test_sessions import *  # noqa: F403  # its tests, with the fixtures of this folder
