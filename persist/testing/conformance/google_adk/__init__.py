"""Checks of the services of Google ADK: `CHECKS` of a session service, `ARTIFACT_CHECKS` and `MEMORY_CHECKS` of the others."""

from persist.testing.conformance.google_adk.artifacts import ARTIFACT_CHECKS
from persist.testing.conformance.google_adk.memories import MEMORY_CHECKS
from persist.testing.conformance.google_adk.sessions import CHECKS

__all__ = ["ARTIFACT_CHECKS", "CHECKS", "MEMORY_CHECKS"]
