"""Validates the syntax of cron expressions; the scheduler computes when they fire.

Five fields (minute, hour, day of month, month, day of week), or six with the seconds first: lists, ranges and steps of
numbers or names, and the signs `?`, `L`, `W` and `#` of the schedulers that have them; or a word such as `@daily`.
"""

import re
from dataclasses import dataclass

from persist.errors import InvalidValue, shown

_WORDS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@reboot"})
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_RANGE = re.compile(r"(?P<first>[0-9]{1,2}|[a-z]{3})(-(?P<last>[0-9]{1,2}|[a-z]{3}))?")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    maximum: int
    names: tuple[str, ...] = ()
    special: str = "(?!)"
    """A pattern of further terms that the field allows."""

    def refusal(self, text: str) -> str | None:
        """Why the field is invalid; None if it is valid."""
        for term in text.lower().split(","):
            base, slash, step = term.partition("/")
            if slash and not (step.isascii() and step.isdigit() and len(step) <= 2 and 1 <= int(step) <= self.maximum):
                return f"{shown(term)} has no step from 1 to {self.maximum}"
            if base in ("*", "?") or (not slash and re.fullmatch(self.special, base)):
                continue
            found = _RANGE.fullmatch(base)
            ends = [] if found is None else [self._number(end) for end in found.group("first", "last") if end is not None]
            if not ends or None in ends:
                return f"{shown(term)} is nothing from {self.least} to {self.maximum}"
            if ends != sorted(ends, key=lambda end: end or 0):
                return f"{shown(term)} ends before it begins"
        return None

    def _number(self, text: str) -> int | None:
        number = int(text) if text.isdigit() else self.names.index(text) + self.least if text in self.names else None
        return number if number is not None and self.least <= number <= self.maximum else None


_SECOND = _Field("second", 0, 59)
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31, special=r"l|lw|([1-9]|[12][0-9]|3[01])w"),
    _Field("month", 1, 12, names=_MONTHS),
    _Field("day of week", 0, 7, names=_DAYS, special=r"l|([0-7]|sun|mon|tue|wed|thu|fri|sat)(l|#[1-5]|#l)"),
)


def check_schedule(path: str, schedule: str) -> str:
    """The schedule; InvalidValue names the field that no cron could read."""
    if schedule.lower() in _WORDS:
        return schedule
    texts = schedule.split()
    if len(texts) not in (5, 6):
        raise InvalidValue(
            path, f"{shown(schedule)} is no cron expression: expected five fields, six with seconds, or a word such as @daily."
        )
    fields = _FIELDS if len(texts) == 5 else (_SECOND, *_FIELDS)
    for field, text in zip(fields, texts, strict=True):
        if (refused := field.refusal(text)) is not None:
            raise InvalidValue(path, f"{shown(schedule)} is no cron expression: of the {field.name}, {refused}.")
    return schedule
