"""Events."""

from persist.ui.views import Section

SECTION = Section("Events", "/events")
