"""What the columns of programs must hold to be read: any word, since raw writers have words of their own."""

from persist.db.shapes import Shapes, any_value
from persist.db.types import Vocabulary
from persist.programs.models import agents, bindings, executions, runs

SHAPES: Shapes = {
    column: any_value
    for table in (runs, executions, bindings, agents)
    for column in table.columns
    if isinstance(column.type, Vocabulary)
}
