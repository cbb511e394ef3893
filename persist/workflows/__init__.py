"""Workflow runs: dispatch, executions of phases, approval gates, leases, recovery after a crash, and workers."""

from persist.lazy_imports import lazy_names

with lazy_names(globals()):
    from persist.workers.async_worker import AsyncWorker
    from persist.workers.retries import backoff, retry_by_attempts
    from persist.workers.worker import Worker

__all__ = ["AsyncWorker", "Worker", "backoff", "retry_by_attempts"]
