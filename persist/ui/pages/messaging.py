"""Messaging."""

from persist.ui.views import Section

SECTION = Section("Messaging", "/messaging")
