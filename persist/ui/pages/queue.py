"""Queue."""

from persist.ui.views import Section

SECTION = Section("Queue", "/queue")
