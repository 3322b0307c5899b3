"""Curves as SVG and a page around them, without anything from the network."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 36
COLOURS = ("#3366cc", "#dd7711", "#2a9d4a", "#b0397a")

STYLE = """
:root { color-scheme: light dark; --ink: #222; --faint: #ccc; --paper: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --faint: #444; --paper: #181818 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 46em; margin: 2em auto; padding: 0 1em;
       color: var(--ink); background: var(--paper) }
svg { width: 100%; height: auto }
svg text { fill: var(--ink); font-size: 12px }
svg .grid { stroke: var(--faint) }
table { border-collapse: collapse }
td, th { padding: .2em 1em .2em 0; text-align: left; border-bottom: 1px solid var(--faint) }
"""


@dataclass
class Curve:
    name: str
    points: list[tuple[float, float]]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between the two."""
    span = max(high - low, 1e-9)
    step = 10 ** math.floor(math.log10(span / about))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= about)
    return [step * index for index in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def chart(title: str, across: str, curves: Sequence[Curve]) -> str:
    """Curves over a common axis that begins at zero."""
    points = [point for curve in curves for point in curve.points]
    right = max((x for x, _ in points), default=1) or 1
    top = max((y for _, y in points), default=1) * 1.05 or 1

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + x / right * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM),
        )

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">']
    for value in ticks(0, top):
        y = place(0, value)[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in ticks(0, right):
        x = place(value, 0)[0]
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{html.escape(across)}</text>')
    for index, curve in enumerate(curves):
        colour = COLOURS[index % len(COLOURS)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in curve.points))
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{line}"/>')
        x = LEFT + 8 + 110 * index
        parts.append(f'<text x="{x}" y="{HEIGHT - 4}" style="fill:{colour}">{html.escape(curve.name)}</text>')
    return f"<h2>{html.escape(title)}</h2>\n" + "\n".join(parts) + "\n</svg>\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"

    return "<table>\n" + line(head, "th") + "".join(line(row, "td") for row in rows) + "</table>\n"


def page(title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{STYLE}</style></head>\n<body><h1>{html.escape(title)}</h1>\n{body}</body></html>\n"
    )
