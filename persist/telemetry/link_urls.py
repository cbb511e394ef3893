"""Parsing URLs of GitHub issues and pull requests into a canonical form. Pure."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from persist.errors import InvalidValue
from persist.telemetry.schemas import LinkKind

_KINDS = {"issue": LinkKind.ISSUE, "issues": LinkKind.ISSUE, "pull": LinkKind.PR, "pulls": LinkKind.PR}
_PATHS = {LinkKind.ISSUE: "issue", LinkKind.PR: "pull"}
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NUMBER = re.compile(r"[0-9]{1,18}")
_USUAL_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True)
class Link:
    """An issue or pull request: its canonical URL, `https://host/owner/repo/issue/1` or `…/pull/1`, and the URL's pieces."""

    url: str
    kind: LinkKind
    host: str
    owner: str
    repo: str
    resource_number: int


def parse_link(path: str, url: str) -> Link:
    """The link of a URL. Raises InvalidValue unless it is the URL of an issue or pull request.

    These make no difference: `issues` or `pulls`, `www.`, capitals in the host, the default port, and all that follows the
    number. `http` becomes `https`.
    """
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        raise _invalid(path) from None
    host = parts.netloc.lower().removeprefix("www.").removesuffix(_USUAL_PORTS.get(parts.scheme, ""))
    pieces = parts.path.split("/")[1:5]
    if parts.scheme not in _USUAL_PORTS or not _HOST.fullmatch(host) or len(pieces) < 4:
        raise _invalid(path)
    owner, repo, word, digits = pieces
    kind = _KINDS.get(word.lower())
    number = int(digits) if _NUMBER.fullmatch(digits) else 0
    if kind is None or number == 0 or not _NAME.fullmatch(owner) or not _NAME.fullmatch(repo):
        raise _invalid(path)
    return Link(f"https://{host}/{owner}/{repo}/{_PATHS[kind]}/{number}", kind, host, owner, repo, number)


def canonical_url(url: object) -> str | None:
    """The canonical form of a stored URL; None if it is no link. Rows with the same canonical URL are of the same link."""
    try:
        return parse_link("url", url).url if isinstance(url, str) else None
    except InvalidValue:
        return None


def _invalid(path: str) -> InvalidValue:
    return InvalidValue(path, "expected the URL of an issue or a pull request, such as https://github.com/owner/repo/pull/1.")
