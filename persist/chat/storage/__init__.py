"""Chat rows: messages, parts, deltas, turns and usage, read and written by statements."""
