"""Workers: processes that claim workflow runs, call a handler for each, keep its lease, and store how it ended."""
