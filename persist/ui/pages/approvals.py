"""Waiting."""

from persist.ui.views import Section

SECTION = Section("Waiting", "/approvals")
