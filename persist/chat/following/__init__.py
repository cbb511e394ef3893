"""Following a running turn: the UI message chunks that rebuild what is stored of its message, then those that come."""
