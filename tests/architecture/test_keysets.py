"""A list that goes on behind a place, and the fields of a value that a row has, are spelled in one module each."""

import ast

from tests.architecture.sources import sources
from tests.cases import each

CONDITION = "persist/db/expressions/keyset.py"
FIELDS = {"persist/db/statements/row_values.py", "persist/db/values/frozen.py"}
_BEHIND = (ast.Lt, ast.Gt, ast.LtE, ast.GtE)


def comparisons(tree: ast.AST, *operators: type[ast.cmpop]) -> list[ast.Compare]:
    """Those of a tree with one of the operators."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Compare) and isinstance(node.ops[0], operators)]


def calls(tree: ast.AST, *names: str) -> list[ast.Call]:
    """The calls in a tree of functions of one of these names."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", None) in names]


def compares_rows(tree: ast.AST) -> bool:
    """Whether tuples are compared, or names of tuples."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and calls(node.value, "tuple_")]
    names = {ast.unparse(target) for node in assigned for target in node.targets}
    sides = [side for node in comparisons(tree, *_BEHIND) for side in (node.left, *node.comparators)]
    return any(calls(side, "tuple_") or ast.unparse(side) in names for side in sides)


def compares_by_column(tree: ast.AST) -> bool:
    """Whether a place is spelled column by column: `or_(a < x, and_(a == x, b > y))`."""
    for either in calls(tree, "or_"):
        both = [*calls(either, "and_"), *(node for node in ast.walk(either) if isinstance(node, ast.BinOp))]
        ordered = {ast.unparse(node.left) for node in comparisons(either, *_BEHIND)}
        for one in both:
            same = {ast.unparse(node.left) for node in comparisons(one, ast.Eq)}
            if same & ordered and {ast.unparse(node.left) for node in comparisons(one, *_BEHIND)} - same:
                return True
    return False


def spells_a_place(text: str, tree: ast.AST) -> bool:
    """Whether a file compares rows with a place in an order of several columns."""
    return ("tuple_(" in text and compares_rows(tree)) or ("or_(" in text and compares_by_column(tree))


@each(
    "text",
    [
        "query.where(tuple_(c.at, c.id) < tuple_(*last))",
        "query.where(tuple_(*columns) <= edge.scalar_subquery())",
        "key = tuple_(c.at, c.id)\nquery.where(last > key)",
        "query.where(or_(c.cost < cost, and_(c.cost == cost, c.name > name)))",
        "query.where(or_(c.cost < cost, (c.cost == cost) & (c.name > name)))",
    ],
)
def test_what_spells_a_place(text: str) -> None:
    assert spells_a_place(text, ast.parse(text))


@each(
    "text",
    ["query.where(tuple_(c.a, c.b).in_(keys))", "query.where(c.at < last)", "query.where(or_(c.at < last, c.at.is_(None)))"],
)
def test_what_spells_none(text: str) -> None:
    assert not spells_a_place(text, ast.parse(text))


def test_the_rows_behind_a_place_are_spelled_once() -> None:
    assert [source.name for source in sources("persist") if spells_a_place(source.text, source.tree)] == [CONDITION]


def test_fields_of_rows_are_spelled_once() -> None:
    """`Values` pairs the fields of a value with its columns, so that no module keeps two tuples of its own."""
    paired = {
        source.name
        for source in sources("persist")
        if "model_fields" in source.text
        and any("model_fields" in ast.unparse(call) for call in calls(source.tree, "tuple", "set"))
    }
    assert paired == FIELDS
