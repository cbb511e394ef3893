"""Blobs: files and other large bytes, stored once under the SHA-256 of what they hold, and named by rows of other domains."""
