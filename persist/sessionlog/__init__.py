"""Session logs: append-only JSONL files, one per agent session, beside the database and without SQL.

A writer translates an agent's events into lines. Logs can be read, tailed (followed while written) and listed. Large texts of
agents belong here; `executions.session_id` names the file.
"""

from persist.sessionlog.envelope import Fsync, LogMessage, RunResult, Scope, SessionLogInfo, truncate_tool_result
from persist.sessionlog.listing import (
    find_session_log,
    is_safe_project_slug,
    list_session_logs,
    normalize_session_id,
    session_log_path,
    slug_for_cwd,
)
from persist.sessionlog.reader import iter_session_log, messages_of, read_session_log, tail_session_log
from persist.sessionlog.writer import SessionLogWriter

__all__ = [
    "Fsync",
    "LogMessage",
    "RunResult",
    "Scope",
    "SessionLogInfo",
    "SessionLogWriter",
    "find_session_log",
    "is_safe_project_slug",
    "iter_session_log",
    "list_session_logs",
    "messages_of",
    "normalize_session_id",
    "read_session_log",
    "session_log_path",
    "slug_for_cwd",
    "tail_session_log",
    "truncate_tool_result",
]
