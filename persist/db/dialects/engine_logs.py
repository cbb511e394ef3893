"""What SQLAlchemy logs of an engine that persist makes: its statements, and neither their parameters nor the rows they find."""

import logging
from typing import Any

_NAME = "persist"
QUIET: dict[str, Any] = {"hide_parameters": True, "logging_name": _NAME}
"""Arguments of create_engine."""


def _is_no_row(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


logging.getLogger(f"sqlalchemy.engine.Engine.{_NAME}").addFilter(_is_no_row)
