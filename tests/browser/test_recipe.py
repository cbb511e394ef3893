"""docs/chat-server.md, followed from an empty folder: its files, its commands, and a browser."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from examples.chat_server.server import PAGE
from tests.browser.scenes import DEADLINE, environment
from tests.markdown import CHAT_SERVER

TEXT = CHAT_SERVER.read_text(encoding="utf-8")
FILES = re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
ANSWER = "success (no tool calls)"  # of Pydantic AI's model for tests


@pytest.fixture
def address(built: None, tmp_path: Path) -> Iterator[str]:
    """The server of the page, in a folder with nothing else in it but what npm installs."""
    assert [name for name, _ in FILES] == ["server.py", "index.html", "page.jsx"]
    for name, text in FILES:
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "node_modules").symlink_to(PAGE / "node_modules")
    bundle, serve = re.findall(r"^(npx esbuild .*|uvicorn .*)$", TEXT, re.MULTILINE)
    subprocess.run(bundle.split(), cwd=tmp_path, check=True, capture_output=True)
    line = [sys.executable, "-m", *serve.replace("8000", "0").split()]
    process = subprocess.Popen(line, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    try:
        while not (found := re.search(r"running on (http://\S+)", said)):
            more = process.stderr.readline()
            assert more, said
            said += more
        yield found[1]
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE)


def test_the_page_of_the_recipe_answers_and_remembers(address: str, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(address)
    answers = page.get_by_role("article", name="assistant")
    for number, question in enumerate(("hello", "and again"), 1):
        page.get_by_label("Message").fill(question)
        page.get_by_role("button", name="Send").click()
        expect(answers).to_have_text([ANSWER] * number)
        page.reload()
        expect(answers).to_have_text([ANSWER] * number)
    expect(page.get_by_role("article", name="user")).to_have_text(["hello", "and again"])
