"""Many tenants in one process: each has a schema or a file of its own, and all share connections and compiled statements."""
