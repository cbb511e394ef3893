"""Conversations."""

from persist.ui.views import Section

SECTION = Section("Conversations", "/conversations")
