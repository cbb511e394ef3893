"""Building blocks of table declarations: the declarative base, column types, scope columns, the table `_meta`."""
