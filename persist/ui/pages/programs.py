"""Programs."""

from persist.ui.views import Section

SECTION = Section("Programs", "/programs")
