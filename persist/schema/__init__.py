"""The schema of a database: metadata, revisions, upgrading, opening and adopting."""
