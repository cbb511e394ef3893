"""The picture of a domain's tables: every table and column, and a curve for each reference between them."""

import re
from xml.etree import ElementTree

from persist.schema.metadata import domain_of, metadata
from tests.cases import each
from website.erd import drawing

DOMAINS = sorted({domain_of(table) for table in metadata.tables.values()})


@each("domain", DOMAINS)
def test_everything_is_drawn(domain: str) -> None:
    tables = [table for table in metadata.tables.values() if domain_of(table) == domain]
    picture = drawing(tables)
    texts = [one.text for one in ElementTree.fromstring(picture).iter() if one.tag.endswith("text")]
    for table in tables:
        assert table.name in texts
        assert {column.name for column in table.columns} <= set(texts)
    keys = [key for table in tables for key in table.foreign_key_constraints if key.referred_table in tables]
    assert picture.count("<path") == len(keys)


def test_nothing_lies_outside_of_the_picture_or_on_another_table() -> None:
    tables = [table for table in metadata.tables.values() if domain_of(table) == "workflows"]
    picture = drawing(tables)
    (wide, high) = map(float, re.findall(r'viewBox="0 0 (\d+) (\d+)"', picture)[0])
    frames = [
        tuple(map(float, found))
        for found in re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)" rx="4" fill="none"', picture)
    ]
    assert len(frames) == len(tables)
    for number, (x, y, width, height) in enumerate(frames):
        assert x + width <= wide
        assert y + height <= high
        for other_x, other_y, other_width, other_height in frames[:number]:
            beside = x + width <= other_x or other_x + other_width <= x
            assert beside or y + height <= other_y or other_y + other_height <= y
