"""Following a running turn: UI message chunks that rebuild the stored part of its message, then new chunks."""
