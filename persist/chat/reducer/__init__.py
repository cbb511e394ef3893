"""Pure: chunks of a UI message stream in, messages out. Usable alone, without a database: `reduce(chunks)`."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

# verbs that need a part's shape alone load no accumulator
if TYPE_CHECKING:
    from persist.chat.reducer.accumulator import reduce as reduce
lazy_names(globals())
