"""Notes: a domain as small as one can be, which uses everything that a domain is given."""
