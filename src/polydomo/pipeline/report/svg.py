"""Drawing by hand: the few SVG words that the charts need, axes, and numbers as people write them.

Colours are CSS variables of the page, so that a chart follows light, dark and print by itself.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

WIDTH = 480  # of a chart in a card, so that its letters are as tall as those of the page
HEIGHT = 180
WIDE = 960  # of one that has the page to itself
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 26


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element; ``stroke_width=1`` becomes ``stroke-width="1"``, ``class_`` becomes ``class``."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{_number(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(x: float, y: float, words: str, **attributes: object) -> str:
    return tag("text", escape(words), x=x, y=y, **attributes)


def title(words: str) -> str:
    """What shows when the pointer rests on an element."""
    return tag("title", escape(words))


def picture(content: str, label: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    return tag("svg", content, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=escape(label, quote=True))


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


# --- numbers for people -------------------------------------------------------------------------------------------------


def duration(us: float) -> str:
    """
    >>> duration(850), duration(12_300), duration(2_500_000), duration(200e6)
    ('850 us', '12.3 ms', '2.5 s', '3.3 min')
    """
    for limit, divisor, unit in ((1e3, 1, "us"), (1e6, 1e3, "ms"), (120e6, 1e6, "s"), (7.2e9, 60e6, "min")):
        if us < limit:
            return f"{us / divisor:.3g} {unit}"
    return f"{us / 3.6e9:.3g} h"


def count(number: float) -> str:
    """
    >>> count(950), count(12_345), count(3_400_000)
    ('950', '12.3 k', '3.4 M')
    """
    for limit, divisor, unit in ((1e3, 1.0, ""), (1e6, 1e3, " k"), (1e9, 1e6, " M")):
        if abs(number) < limit:
            return f"{number / divisor:.3g}{unit}"
    return f"{number / 1e9:.3g} G"


def clock(seconds: float, span: float) -> str:
    """A moment as an axis names it: the finer the shorter the span."""
    moment = datetime.fromtimestamp(seconds, UTC)
    if span < 600:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%H:%M") if span < 86_400 * 2 else moment.strftime("%d %b")


# --- scales and axes ----------------------------------------------------------------------------------------------------


class Scale:
    """Values to positions, linear or logarithmic."""

    def __init__(self, low: float, high: float, start: float, end: float, log: bool = False) -> None:
        if log:
            low = max(low, 1.0)
            high = max(high, low * 10)
        elif high <= low:
            high = low + 1.0
        self.low, self.high, self.start, self.end, self.log = low, high, start, end, log

    def __call__(self, value: float) -> float:
        if self.log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + min(max(part, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, wanted: int = 4) -> list[float]:
        """Round values along the scale."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            step = max(1, (last - first) // wanted)
            return [10.0**n for n in range(first, last + 1, step)]
        rough = (self.high - self.low) / wanted
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def time_axis(scale: Scale, height: float = HEIGHT) -> str:
    span = scale.high - scale.low
    most = (scale.end - scale.start) / 66  # a name of a moment and the room beside it
    step = next(
        (s for s in (1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21_600, 86_400) if span / s <= most), 86_400 * 7
    )
    at = math.ceil(scale.low / step) * step
    out: list[str] = []
    while at <= scale.high:
        x = scale(at)
        out.append(tag("line", x1=x, x2=x, y1=TOP, y2=height - BOTTOM, class_="grid"))
        out.append(text(min(x, scale.end - 14), height - 8, clock(at, span), class_="tick", text_anchor="middle"))
        at += step
    return "".join(out)


def value_axis(scale: Scale, unit: str = "", width: float = WIDTH) -> str:
    out: list[str] = []
    for value in scale.ticks():
        y = scale(value)
        name = duration(value) if unit == "us" else count(value) + unit
        out.append(tag("line", x1=LEFT, x2=width - RIGHT, y1=y, y2=y, class_="grid"))
        out.append(text(LEFT - 6, y + 3.5, name, class_="tick", text_anchor="end"))
    return "".join(out)


def points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)
