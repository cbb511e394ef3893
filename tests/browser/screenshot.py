"""Takes the picture of the chat that the README shows: `python -m tests.browser.screenshot docs/chat-server.png`."""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from tests.browser.scenes import Gate, Server, Window, open_chromium, tour

EARLIER = ("Plan a week in Lisbon", "Why is the build red?", "Names for a boat")


def take(server: Server, picture: Path) -> None:
    with sync_playwright() as playwright, open_chromium(playwright) as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 730}, color_scheme="light")
        window = Window(page, server)
        for question in EARLIER:
            window.ask(question)
            expect(window.said).to_have_text(tour(question))
            window.button("New chat").click()
            expect(window.answers).to_have_count(0)
        window.ask("What can you do?")
        expect(window.said).to_have_text(tour("What can you do?"))
        expect(window.button("Send")).to_be_visible()
        window.ask("Write Ada an email about the meeting")
        expect(window.button("Approve")).to_be_visible()
        expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(len(EARLIER) + 1)
        page.mouse.move(0, 0)
        page.screenshot(path=picture)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        server = Server(f"sqlite:///{folder}/chat.db", Gate(Path(folder) / "gate"))
        try:
            take(server, Path(sys.argv[1]))
        finally:
            server.stop()
