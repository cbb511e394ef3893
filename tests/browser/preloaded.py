"""Loaded once by the process that the servers are forked from: all that a chat needs, with nothing left open."""

from examples.chat_server import __main__ as chat
from tests import preloaded

LOADED = (preloaded, chat)
