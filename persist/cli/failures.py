"""How a command fails: one line on standard error, without credentials, and an exit code."""

import re

import click

from persist.cli.output import inline

_CREDENTIALS = re.compile(r"(://[^\s:/@]*:)\S*@")
_PARAMETERS = re.compile(r"(?i)\b((?:ssl)?password=)[^\s&'\"]+")


class Failed(click.ClickException):
    """Ends the command with exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(inline(redacted(" ".join(message.split()))))


def redacted(text: str) -> str:
    """The text without the passwords of database URLs that it may repeat."""
    return _PARAMETERS.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))
