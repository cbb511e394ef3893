"""Pure: chunks of a UI message stream in, messages out. Usable alone, without a database: `reduce(chunks)`."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.chat.reducer.accumulator import reduce

__all__ = ["reduce"]

# verbs that need a part's shape alone load no accumulator
__getattr__ = lazy_names(__name__, {"reduce": "persist.chat.reducer.accumulator"})
