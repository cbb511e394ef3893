"""Messaging: sessions of users in channels and threads of chat platforms, and their messages."""
