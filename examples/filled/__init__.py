"""A store with something of everything in it, as a small team of developers and their agents would leave it after two weeks."""

from examples.filled.filling import fill, is_filled
from examples.filled.times import Clock

__all__ = ["Clock", "fill", "is_filled"]
