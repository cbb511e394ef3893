"""Runs the Python blocks of a page, in order and in one namespace."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FRAMEWORKS = (
    DOCS / "integrations.md",
    DOCS / "coming-from-langgraph.md",
    DOCS / "coming-from-openai-agents.md",
    DOCS / "how-to" / "fastapi.md",
    DOCS / "how-to" / "django.md",
    DOCS / "how-to" / "celery-and-fork.md",
    DOCS / "how-to" / "ui.md",
)
"""Run where the frameworks are installed: tests/integrations/test_docs.py."""
CHAT_SERVER = DOCS / "chat-server.md"
"""Runs beside a browser: tests/browser/test_recipe.py."""
TUTORIAL = DOCS / "tutorial.md"
WALKED = (TUTORIAL, DOCS / "deployment.md", DOCS / "how-to" / "pytest.md", DOCS / "how-to" / "alembic.md")
"""Are followed by a shell, line by line, in a folder of their own: tests/walks."""
CONTAINERS = DOCS / "how-to" / "containers.md"
"""Is read by tests/walks/test_containers.py: no container runs in the tests."""
WITHOUT_CODE = (DOCS / "index.md", DOCS / "how-to" / "index.md", DOCS / "upgrading.md")
PAGES = sorted({*DOCS.rglob("*.md")} - {*FRAMEWORKS, CHAT_SERVER, *WALKED, CONTAINERS, *WITHOUT_CODE})
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_blocks(page: Path, namespace: dict[str, Any]) -> int:
    """How many there were. A traceback names the page and the line in it."""
    text = page.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    for block in blocks:
        lines_before = text.count("\n", 0, block.start(1))
        exec(compile("\n" * lines_before + block[1], str(page), "exec"), namespace)
    return len(blocks)
