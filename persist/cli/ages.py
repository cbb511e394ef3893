"""Ages on the command line: 90m, 12h, 30d, 2w."""

import re
from datetime import timedelta

import click

_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h|d|w)", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def to_age(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """For `callback=` of an option: a number and a unit, seconds, minutes, hours, days or weeks."""
    if value is None:
        return None
    match = _AGE.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"expected an age such as 90m, 12h, 30d or 2w, got {value!r}.")
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        raise click.BadParameter(f"{value!r} is longer than there are dates.") from None
