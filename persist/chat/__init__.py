"""Chat: sessions, messages and parts of AI SDK conversations, recorded as they stream."""
