"""Overview."""

from persist.ui.views import Section

SECTION = Section("Overview", "/")
