"""Sizes as people read them."""

_UNITS = ("B", "KB", "MB", "GB", "TB")


def size(count: int | None) -> str:
    """1,234,567 bytes as 1.2 MB; `-` where nobody knows."""
    if count is None:
        return "-"
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{count} B" if not unit else f"{value:,.1f} {_UNITS[unit]}"
