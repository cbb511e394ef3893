"""Runs the Python blocks of a page, in order and in one namespace."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FRAMEWORKS = ROOT / "docs" / "integrations.md"
"""Runs where the frameworks are installed: tests/integrations/test_docs.py."""
CHAT_SERVER = ROOT / "docs" / "chat-server.md"
"""Runs beside a browser: tests/browser/test_recipe.py."""
TUTORIAL = ROOT / "docs" / "tutorial.md"
"""Is followed in a folder of its own: tests/walks/test_tutorial.py."""
PAGES = sorted(set((ROOT / "docs").rglob("*.md")) - {FRAMEWORKS, CHAT_SERVER, TUTORIAL})
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_blocks(page: Path, namespace: dict[str, Any]) -> int:
    """How many there were. A traceback names the page and the line in it."""
    text = page.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    for block in blocks:
        lines_before = text.count("\n", 0, block.start(1))
        exec(compile("\n" * lines_before + block[1], str(page), "exec"), namespace)
    return len(blocks)
