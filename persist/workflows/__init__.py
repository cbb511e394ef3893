"""Workflow runs: dispatch, executions of phases, approval gates, leases, recovery after a crash, and workers."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.workers.jobs import backoff as backoff
    from persist.workers.jobs import retry_by_attempts as retry_by_attempts
    from persist.workers.worker import AsyncWorker as AsyncWorker
    from persist.workers.worker import Worker as Worker
lazy_names(globals())
