"""Validation of program columns on reading: status columns accept any word, since raw writers use words of their own."""

from persist.db.schema.column_types import EnumText
from persist.db.schema.shapes import Shapes, any_value
from persist.programs.models import agents, bindings, executions, runs

SHAPES: Shapes = {
    column: any_value
    for table in (runs, executions, bindings, agents)
    for column in table.columns
    if isinstance(column.type, EnumText)
}
