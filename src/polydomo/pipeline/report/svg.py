"""Building blocks of the charts: SVG elements, scales, axes and number formats.

Colours are CSS variables of the page, so a chart follows light mode, dark mode and print by itself.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from polydomo.pipeline.report.escape import escape

WIDTH = 480  # of a chart in a card, so that its letters are as tall as those of the page
HEIGHT = 180
WIDE = 960  # of one that has the page to itself
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 26


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element; ``stroke_width=1`` becomes ``stroke-width="1"``, ``class_`` becomes ``class``."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{_number(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(x: float, y: float, words: str, **attributes: object) -> str:
    return tag("text", escape(words), x=x, y=y, **attributes)


def title(words: str) -> str:
    """The tooltip of an element."""
    return tag("title", escape(words))


def picture(content: str, label: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    return tag("svg", content, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=escape(label))


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


# --- number formats -------------------------------------------------------------------------------------------------


def duration(us: float) -> str:
    """
    >>> duration(850), duration(12_300), duration(2_500_000), duration(200e6)
    ('850 us', '12.3 ms', '2.5 s', '3.3 min')
    """
    for limit, divisor, unit in ((1e3, 1, "us"), (1e6, 1e3, "ms"), (120e6, 1e6, "s"), (7.2e9, 60e6, "min")):
        if us < limit:
            return f"{us / divisor:.3g} {unit}"
    return f"{us / 3.6e9:.3g} h"


def full(number: float) -> str:
    """A number in full.

    >>> full(12_345), full(331.7), full(0.0123)
    ('12,345', '332', '0.0123')
    """
    if number == int(number) or abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def percent(share: float) -> str:
    r"""A share from 0 to 1 as a percentage; only exactly 1 is shown as 100 %.

    >>> percent(1.0), percent(0.99999), percent(0.968), percent(0.0)
    ('100\xa0%', '99.9\xa0%', '96.8\xa0%', '0\xa0%')
    """
    return f"{min(100 * share, 99.9) if share < 1 else 100:.3g}\N{NO-BREAK SPACE}%"


def count(number: float) -> str:
    """A number for an axis, short.

    >>> count(950), count(12_345), count(3_400_000)
    ('950', '12.3 k', '3.4 M')
    """
    for limit, divisor, unit in ((1e3, 1.0, ""), (1e6, 1e3, " k"), (1e9, 1e6, " M")):
        if abs(number) < limit:
            return f"{number / divisor:.3g}{unit}"
    return f"{number / 1e9:.3g} G"


def clock(seconds: float, step: float, span: float) -> str:
    """The label of a time on an axis, depending on the distance of ticks and the length of the axis."""
    moment = datetime.fromtimestamp(seconds, UTC)
    if step >= 86_400:
        return moment.strftime("%d %b")
    time = moment.strftime("%H:%M:%S" if step < 60 else "%H:%M")
    return f"{moment:%d %b} {time}" if span >= 86_400 * 2 else time


# --- scales and axes ----------------------------------------------------------------------------------------------------


class Scale:
    """Maps values to positions, linear or logarithmic."""

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

    def ticks(self) -> list[float]:
        """About four round values along the scale."""
        if self.log:
            first, last = math.floor(math.log10(self.low) + 1e-9), math.floor(math.log10(self.high) + 1e-9)
            inside = (self.low * (1 - 1e-9), self.high * (1 + 1e-9))
            if last - first <= 1:  # powers of ten alone would be one tick or two
                fine = [m * 10.0**n for n in range(first, last + 1) for m in (1, 2, 5)]
                return [value for value in fine if inside[0] <= value <= inside[1]]
            step = max(1, (last - first) // 4)
            return [10.0**n for n in range(first, last + 1, step) if inside[0] <= 10.0**n <= inside[1]]
        rough = (self.high - self.low) / 4
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


class TimeScale:
    """Maps times to positions. Long idle times between windows are cut out; a strip marks the cut."""

    CUT = 16.0  # width of the strip

    def __init__(self, times: Sequence[float], step: float, start: float, end: float) -> None:
        self.step, self.start, self.end = step, start, end
        pieces = [[times[0], times[0]]]
        for moment in times:
            if moment > pieces[-1][1] + step * 1.5:
                pieces.append([moment, moment])
            pieces[-1][1] = moment
        self.pieces = [(first, last + step) for first, last in pieces]
        drawn = sum(last - first for first, last in self.pieces)
        self.per_second = (end - start - self.CUT * (len(pieces) - 1)) / drawn
        self.places: list[float] = []  # the beginning of each piece
        at = start
        for first, last in self.pieces:
            self.places.append(at)
            at += (last - first) * self.per_second + self.CUT

    @property
    def span(self) -> float:
        """The time from the first to the last moment, including cuts."""
        return self.pieces[-1][1] - self.pieces[0][0]

    @property
    def width(self) -> float:
        """The width of one window."""
        return self.step * self.per_second

    def __call__(self, moment: float) -> float:
        for place, (first, last) in zip(reversed(self.places), reversed(self.pieces), strict=True):
            if moment >= first:
                return place + min(moment - first, last - first) * self.per_second
        return self.start

    def cuts(self) -> list[tuple[float, float]]:
        """The positions of the cuts, and their lengths in seconds."""
        gaps = (after[0] - before[1] for before, after in pairwise(self.pieces))
        return [(place - self.CUT, gap) for place, gap in zip(self.places[1:], gaps, strict=True)]


STEPS = (1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21_600, 86_400, 7 * 86_400)


def time_axis(scale: TimeScale) -> str:
    room = 84 if scale.span >= 86_400 * 2 else 66  # for a label and the space beside it
    step = next((s for s in STEPS if s * scale.per_second >= room), STEPS[-1])
    out: list[str] = []
    named = -float(room)
    for first, last in scale.pieces:
        at = math.ceil(first / step) * step
        moments: list[float] = [at + step * i for i in range(int((last - at) // step) + 1)] if at <= last else []
        for moment in moments or [first]:
            x = scale(moment)
            out.append(tag("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="grid"))
            name = clock(moment, step if moments else min(step, 60), scale.span)
            half = 4.4 * len(name)  # on a phone the letters are larger
            middle = min(max(x, scale.start - 20 + half), scale.end + RIGHT - half)
            if middle - named >= room:
                named = middle
                out.append(text(middle, HEIGHT - 8, name, class_="tick", text_anchor="middle"))
    for x, seconds in scale.cuts():
        tooltip = title(f"idle for {duration(seconds * 1e6)}, cut out")
        bottom = HEIGHT - BOTTOM
        out.append(tag("rect", tooltip, x=x, y=TOP, width=scale.CUT, height=bottom - TOP, class_="cut"))
        for y in range(TOP, int(bottom), 12):
            out.append(tag("line", x1=x, x2=x + scale.CUT, y1=y + 12, y2=y, class_="cut-line"))
    return "".join(out)


def value_axis(scale: Scale, unit: str = "", width: float = WIDTH) -> str:
    out: list[str] = []
    for value in scale.ticks():
        y = scale(value)
        name = duration(value) if unit == "us" else count(value) + unit
        if unit == "us" and value <= 1:
            name = "≤ 1 us"  # the lowest bucket
        out.append(tag("line", x1=LEFT, x2=width - RIGHT, y1=y, y2=y, class_="grid"))
        out.append(text(LEFT - 6, y + 3.5, name, class_="tick", text_anchor="end"))
    return "".join(out)


def points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)
