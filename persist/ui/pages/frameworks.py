"""Frameworks."""

from persist.ui.views import Section

SECTION = Section("Frameworks", "/frameworks")
