"""Writes time series as an SVG file, without a plotting library."""

from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 900, 170, 70, 50, 50
COLOURS = ("#1f6feb", "#d4722a")

Points = list[tuple[float, float]]


@dataclass
class Line:
    """One panel: a title and one or more series of (seconds, value)."""

    title: str
    series: list[Points]


def draw(title: str, panels: list[Line], seconds: float) -> str:
    height = TOP + len(panels) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + LEFT + 30}" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, TOP + 10 + number * (HEIGHT + GAP), seconds)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Line, top: float, seconds: float) -> list[str]:
    most = _round_up(max((value for points in panel.series for _, value in points), default=1.0))
    bottom = top + HEIGHT - 20
    tall = bottom - top
    parts = [f'<text x="{LEFT}" y="{top - 6}">{escape(panel.title)}</text>']
    for step in range(5):
        y = bottom - tall * step / 4
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{most * step / 4:g}</text>')
    minutes = seconds / 60
    for step in range(6):
        x = LEFT + WIDTH * step / 5
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{minutes * step / 5:.3g} min</text>')
    for points, colour in zip(panel.series, COLOURS, strict=False):
        path = " ".join(f"{LEFT + WIDTH * at / seconds:.1f},{bottom - tall * value / most:.1f}" for at, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return parts


def _round_up(value: float) -> float:
    """
    >>> [_round_up(n) for n in (0.0, 3.2, 148.0, 1001.0)]
    [1.0, 4.0, 200.0, 2000.0]
    """
    if value <= 0:
        return 1.0
    scale = 1.0
    while value > 10 * scale:
        scale *= 10
    while value < scale:
        scale /= 10
    return next(step * scale for step in (1.0, 2.0, 4.0, 5.0, 8.0, 10.0) if value <= step * scale)
