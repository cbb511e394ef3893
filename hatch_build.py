"""What a package says of itself beyond pyproject.toml: its page, whose links lead somewhere also outside of the repository.

PERSIST_REPOSITORY_URL says where that repository is, as the workflow of a release does. Without it the page has no links to
files, since they would lead nowhere.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"!\[([^\]]*)\]\((?!\w+:)([^)]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:)([^)]+)\)")


class CustomMetadataHook(MetadataHookInterface):
    """Sets `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling for every build, an editable one too."""
        repository = os.environ.get("PERSIST_REPOSITORY_URL", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        commit = f"v{metadata['version']}"
        metadata["readme"] = {"content-type": "text/markdown", "text": page(text, repository, commit)}
        metadata["urls"] = urls(repository, commit)


def page(text: str, repository: str, commit: str) -> str:
    """The README with links and pictures of the repository at that commit, or with neither if it is not known where that is."""
    if not repository:
        return _LINK.sub(r"\1", _PICTURE.sub("", text))
    text = _PICTURE.sub(rf"![\1]({repository}/raw/{commit}/\2)", text)
    return _LINK.sub(rf"[\1]({repository}/blob/{commit}/\2)", text)


def urls(repository: str, commit: str) -> dict[str, str]:
    """The links beside the page."""
    if not repository:
        return {}
    pages = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}
    return {"Repository": repository, **{name: f"{repository}/blob/{commit}/{path}" for name, path in pages.items()}}
