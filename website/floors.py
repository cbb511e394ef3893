"""Flowcharts of Mermaid in pages, drawn as boxes one above the other when the site is built: no script is loaded to draw them.

A code host draws the same text itself. Only what the pages have is understood: chains of `name["label"]`, and one subgraph.
"""

import re
from html import escape

_CHART = re.compile(r"^```mermaid\nflowchart TD\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NODE = re.compile(r'(\w+)(?:\["([^"]*)"\])?')
_BOX = "border: 1px solid currentColor; border-radius: 4px; margin: 0.3em 0; padding: 0.2em 0.8em; text-align: center"


def drawn(markdown: str) -> str:
    """The text with each flowchart as boxes."""
    return _CHART.sub(lambda match: f'<div markdown="0" style="font-size: 90%">{_boxes(match[1])}</div>', markdown)


def _boxes(chart: str) -> str:
    frames = dict(re.findall(r'subgraph (\w+)\["([^"]*)"\]', chart))
    seen: set[str] = set()
    boxes: list[str] = []
    for line in map(str.strip, chart.splitlines()):
        if line.startswith("subgraph"):
            boxes.append(f'<div style="{_BOX}"><b>{escape(frames[line.split()[1].partition("[")[0]])}</b>')
        elif line == "end":
            boxes.append("</div>")
        else:
            for name, label in (found for piece in line.split("-->") for found in _NODE.findall(piece.strip())[:1]):
                if name not in seen and name not in frames:
                    seen.add(name)
                    boxes.append(f'<div style="{_BOX}">{escape(label or name)}</div>')
    return "".join(boxes)
