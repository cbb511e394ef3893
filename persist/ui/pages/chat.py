"""Chat."""

from persist.ui.views import Section

SECTION = Section("Chat", "/chat")
