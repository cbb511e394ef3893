"""Health."""

from persist.ui.views import Section

SECTION = Section("Health", "/health")
