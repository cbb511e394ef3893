"""Loaded once by the process that the servers are forked from: all that a chat needs, with nothing left open."""

from tests import preloaded
from tests.browser import chat_process

LOADED = (preloaded, chat_process)
