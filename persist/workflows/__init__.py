"""Workflow runs: what is dispatched, what each phase did, which gate waits for whom, and where to resume after a crash."""
