"""Change data capture: records the rows that each verb changed, for the event log."""
