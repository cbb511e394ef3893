"""The pages, by what they are about: each module has its section."""

from persist.ui.pages import (
    approvals,
    chat,
    conversations,
    events,
    frameworks,
    health,
    logs,
    messaging,
    overview,
    programs,
    queue,
    runs,
    telemetry,
    usage,
)

SECTIONS = tuple(
    module.SECTION
    for module in (
        overview,
        approvals,
        runs,
        queue,
        chat,
        conversations,
        programs,
        telemetry,
        usage,
        messaging,
        logs,
        frameworks,
        events,
        health,
    )
)
"""In the order of the menu."""
