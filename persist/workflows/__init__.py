"""Workflow runs: dispatch, executions of phases, approval gates, leases, and recovery after a crash."""
