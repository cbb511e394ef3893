"""Telemetry."""

from persist.ui.views import Section

SECTION = Section("Telemetry", "/telemetry")
