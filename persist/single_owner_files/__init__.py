"""Files that belong to one run, instance or workspace."""
