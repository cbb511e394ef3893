"""Logs."""

from persist.ui.views import Section

SECTION = Section("Logs", "/logs")
