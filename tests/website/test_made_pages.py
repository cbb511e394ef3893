"""What the site adds to docs/: files beside it as pages, flowcharts as boxes. `make docs-build` proves the rest."""

import re

import persist
from persist.schema.metadata import domain_of, metadata
from tests.architecture.test_public_names import NAMES
from tests.markdown import DOCS, ROOT
from website import elsewhere, floors, reference


def test_links_that_leave_docs_lead_to_pages_of_those_files() -> None:
    texts = [path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")]
    made = elsewhere.pages(texts)
    assert {"project/README.md", "project/CONTRIBUTING.md", "project/examples/harness-py.md"} <= made.keys()
    assert "def release(run" in made["project/examples/harness-py.md"]
    assert elsewhere.relinked("see [it](../examples/harness.py) and [chat](chat.md#reading)", "workflows.md") == (
        "see [it](project/examples/harness-py.md) and [chat](chat.md#reading)"
    )
    assert elsewhere.relinked("[chat](../chat.md)", "how-to/pytest.md") == "[chat](../chat.md)"
    assert elsewhere.relinked("[chat](docs/chat.md#reading)", "project/README.md") == "[chat](../chat.md#reading)"
    assert elsewhere.relinked("```\n[a](../README.md)\n```", "chat.md") == "```\n[a](../README.md)\n```"
    assert elsewhere.relinked("<details>\n\n- a\n\n</details>", "project/README.md").startswith('<details markdown="1">')


def test_flowcharts_become_boxes() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    made = floors.drawn(page)
    assert "```mermaid" not in made
    assert made.count("<div") == made.count("</div>")
    assert "errors" in made


def test_the_reference_has_every_name_that_is_imported() -> None:
    """By that name, also where the class has another one in its domain: a search finds headings."""
    classes = {name for name in NAMES if isinstance(getattr(persist, name), type)}
    errors = {name for name in classes if issubclass(getattr(persist, name), persist.PersistError)}
    shown = set(re.findall(r"^(?:::: .*\.|      heading: )(\w+)$", reference.store(), re.MULTILINE))
    assert classes - errors - {"Settings"} <= shown
    assert "heading: TelemetryTask\n" in reference.store()
    assert "heading: Task, in persist TelemetryTask\n" in reference.domain("telemetry")


def test_the_reference_has_every_domain_with_tables() -> None:
    assert set(reference.DOMAINS) == {domain_of(table) for table in metadata.tables.values()} - {"db"}
