"""What differs between the databases: one interface, and a sub-package for each."""
