"""Plots of latencies by percentile: as text for a terminal, and as SVG."""

import math
from collections.abc import Sequence
from html import escape

POINTS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 1.0)
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 420, 70, 50, 30, 180  # of the SVG, in pixels
NINES = 4.0  # the horizontal axis ends at 99.99 %


def quantile(ordered: Sequence[float], part: float) -> float:
    """The nearest rank. There must be a value."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def text_plot(title: str, ordered: Sequence[float], width: int = 60) -> list[str]:
    """A bar for each percentile, on a logarithmic scale.

    >>> for line in text_plot("echo", [0.0001] * 99 + [0.01], 20): print(line)
    echo: latency by percentile, logarithmic
       0.00 %     100 us #
      25.00 %     100 us #
      50.00 %     100 us #
      75.00 %     100 us #
      90.00 %     100 us #
      95.00 %     100 us #
      99.00 %     100 us #
      99.50 %   10.00 ms ####################
      99.90 %   10.00 ms ####################
      99.95 %   10.00 ms ####################
      99.99 %   10.00 ms ####################
     100.00 %   10.00 ms ####################
    """
    if not ordered:
        return [f"{title}: no call was answered"]
    least, most = max(1e-6, ordered[0]), max(1e-6, ordered[-1])
    span = math.log(most / least) or 1.0
    lines = [f"{title}: latency by percentile, logarithmic"]
    for point in POINTS:
        value = quantile(ordered, point)
        length = 1 + round((width - 1) * math.log(max(1e-6, value) / least) / span)
        lines.append(f" {point * 100:6.2f} % {duration(value):>10} {'#' * length}")
    return lines


def duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def svg_plot(title: str, series: "Sequence[tuple[str, Sequence[float]]]") -> str:
    """Latencies by percentile, one line for each series of ordered values; both axes are logarithmic."""
    values = [value for _, ordered in series for value in ordered[:: max(1, len(ordered) - 1)] if value > 0]
    least = 10.0 ** math.floor(math.log10(max(1e-6, min(values, default=1e-4))))
    most = 10.0 ** math.ceil(math.log10(max(1e-5, max(values, default=1e-1))))

    def x(part: float) -> float:
        nines = -math.log10(max(10**-NINES, 1.0 - part))
        return LEFT + (WIDTH - LEFT - RIGHT) * nines / NINES

    def y(value: float) -> float:
        share = math.log10(min(most, max(least, value)) / least) / math.log10(most / least)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for part, label in ((0.0, "0"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99 %")):
        out.append(f'<line x1="{x(part):.1f}" y1="{TOP}" x2="{x(part):.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        out.append(f'<text x="{x(part):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    value = least
    while value <= most * 1.001:
        out.append(f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{duration(value)}</text>')
        value *= 10
    for number, (name, ordered) in enumerate(series):
        if not ordered:
            continue
        colour = COLOURS[number % len(COLOURS)]
        parts = [1 - 10 ** (-NINES * step / 100) for step in range(101)]
        points = " ".join(f"{x(part):.1f},{y(quantile(ordered, part)):.1f}" for part in parts)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{TOP + 16 + 18 * number}" fill="{colour}">{escape(name)}</text>')
    out.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">percentile of calls</text>'
    )
    return "\n".join([*out, "</svg>", ""])
