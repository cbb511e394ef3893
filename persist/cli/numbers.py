"""Numbers with a fraction on the command line."""

import math
from typing import Any

import click


class FloatRange(click.FloatRange):
    """A number in a range. Click's own takes what is no number, too, as it is neither below nor above the range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; click reports what is none as a usage error."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number
