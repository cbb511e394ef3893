"""The server of examples/chat_server with a model at the test's pace: `python -m tests.browser.chat_process URL GATE PORT`.

GATE is a file with the number of words that may be said of each answer: what a test waits for is there, and nothing more.
"""

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from examples.chat_server.__main__ import serve
from examples.chat_server.assistant import assistant
from examples.chat_server.scripted_model import scripted_model
from examples.chat_server.server import application


async def until_allowed(gate: Path, word: int) -> None:
    while int(gate.read_text()) <= word:
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    os.environ["PERSIST_NOTIFY_FOLLOWERS"] = "true"  # as it is outside of tests
    url, gate, port = sys.argv[1:]
    serve(application(url, assistant(scripted_model(partial(until_allowed, Path(gate))))), int(port), patience=1)
