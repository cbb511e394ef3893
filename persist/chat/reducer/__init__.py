"""Pure: chunks of a UI message stream in, messages out. Usable alone, without a database: `reduce(chunks)`."""

from persist.lazy_imports import lazy_names

# verbs that need a part's shape alone load no accumulator
with lazy_names(globals()):
    from persist.chat.reducer.accumulator import reduce

__all__ = ["reduce"]
