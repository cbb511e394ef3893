"""Messaging: sessions of people in channels and threads of a chat platform, and what was said there."""
