"""Hooks of mkdocs: pages that are made from the source, and links of docs/ to files beside it, which become pages, too."""

from collections.abc import Callable
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import elsewhere, floors, reference

PAGES: dict[str, Callable[[], str]] = {
    "reference/index.md": reference.index,
    "reference/store.md": reference.store,
    "reference/domains.md": reference.domains_page,
    "reference/maintenance.md": reference.maintenance,
    "reference/integrations.md": reference.integrations,
    "reference/errors.md": reference.errors,
    "reference/settings.md": reference.settings,
    "reference/command-line.md": reference.command_line,
    "reference/tables.md": reference.tables_page,
}

REFERENCE = """  [Stores](reference/store.md), [verbs](reference/domains.md), [command line](reference/command-line.md),
  [settings](reference/settings.md), [errors](reference/errors.md), [tables](reference/tables.md)."""
"""What the first page says of the reference on the site; in the repository there is none to link to."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made: the reference, and each file outside of docs/ that a page names."""
    made = {path: page() for path, page in PAGES.items()}
    for domain in reference.DOMAINS:
        made[f"reference/{domain}.md"] = reference.domain(domain)
        made[f"reference/tables-{domain}.md"] = reference.tables(domain)
    made |= elsewhere.pages([file.content_string for file in files.documentation_pages()])
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ to the pages of those files, and draw the flowcharts."""
    if page.file.src_uri == "index.md":
        markdown = markdown.replace("<!-- reference -->", REFERENCE)
    return floors.drawn(elsewhere.relinked(markdown, page.file.src_uri))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of each domain into the menu."""
    assert config.nav is not None
    menu: list[Any] = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    menu[menu.index("reference/domains.md")] = {
        "Verbs": ["reference/domains.md", *(f"reference/{name}.md" for name in reference.DOMAINS)]
    }
    menu[menu.index("reference/tables.md")] = {
        "Tables": ["reference/tables.md", *({name: f"reference/tables-{name}.md"} for name in reference.DOMAINS)]
    }
    return config
