"""Usage."""

from persist.ui.views import Section

SECTION = Section("Usage", "/usage")
