"""Following a running turn: the UI message chunks that rebuild the stored message, as far as it is stored, and then what comes."""
