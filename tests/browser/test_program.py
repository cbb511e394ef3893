"""`python -m examples.chat_server`, as a person starts and ends it, without a browser."""

import signal
import subprocess
import sys
from pathlib import Path

import httpx

from persist import sse
from tests.browser.scenes import DEADLINE, environment

QUESTION = {"id": "q", "role": "user", "parts": [{"type": "text", "text": "let me choose"}]}


def test_a_person_starts_it_asks_and_ends_it(built: None, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "examples.chat_server", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(line, cwd=tmp_path, env=environment(), **pipes)  # type: ignore[call-overload]  # of the pipes
    try:
        address = process.stdout.readline().strip()
        with httpx.Client(base_url=address, timeout=DEADLINE, trust_env=False) as client:
            assert "<title>Chat</title>" in client.get("/").text
            assert client.get("/page.js").status_code == client.get("/page.css").status_code == 200
            id = client.post("/api/sessions", json={}).json()["id"]
            with client.stream("POST", "/api/chat", json={"id": id, "messages": [QUESTION]}) as response:
                chunks = list(sse.parse(response.iter_bytes()))
            assert (chunks[0]["type"], chunks[-1]["type"]) == ("start", "finish")
            assert [chunk["toolName"] for chunk in chunks if chunk["type"] == "tool-input-available"] == ["choose"]
            assert client.get("/api/sessions").json() == [{"id": id, "title": "let me choose"}]
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=DEADLINE)
        assert (said, errors) == ("", "")
        assert (tmp_path / "chat.db").exists()
    finally:
        process.kill()
        process.communicate()
