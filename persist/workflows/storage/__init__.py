"""Storage of runs and executions, their payloads and gates."""
