"""The pictures of the first page come from the program, pyproject.toml and the page of benchmarks."""

import re

from website import pictures, recording


def test_the_moving_picture_shows_what_the_demo_prints() -> None:
    shown = [recording.without_ids(line) for line in recording.texts(recording.PICTURE.read_text(encoding="utf-8"))]
    lines = recording.record()
    assert shown == [recording.without_ids(line.text) for line in lines]
    assert recording.texts(recording.drawn(lines)) == [line.text for line in lines]
    assert [line.at for line in lines] == sorted(line.at for line in lines)


def test_an_unfinished_text_says_so_and_ends_with_a_whole_word() -> None:
    shown = recording.texts(recording.PICTURE.read_text(encoding="utf-8"))
    (half,) = [line for line in shown if " unfinished " in line]
    whole = " ".join(" ".join(shown[shown.index("5. The transcript, and what it cost") :]).split())
    *_, last = re.split(r" … | …$", half.rstrip("…").strip())
    assert half.endswith(" …")
    assert f" {last.strip()} " in whole


def test_pictures_are_those_of_today() -> None:
    for name, picture in pictures.pictures().items():
        assert (pictures.FOLDER / name).read_text(encoding="utf-8") == picture, f"python -m website.pictures draws {name} anew"


def test_there_are_five_bars() -> None:
    rows = pictures.measured()
    assert len(rows) == 5
    assert rows[0] == ("persist", 1.0)
    assert pictures.bars(rows).count("<rect") == 5
