"""The charts of the report: each a function from plain numbers to an SVG picture."""

import math
from collections.abc import Mapping, Sequence

from polydomo.pipeline.report.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    count,
    duration,
    picture,
    points,
    tag,
    text,
    time_axis,
    title,
    value_axis,
)

Series = Sequence[float]


def stacked(times: Series, step: float, series: Mapping[str, Series], label: str) -> str:
    """Columns over time, one part for each series: what came of the requests. A series' name is its CSS class."""
    if not times:
        return nothing(label)
    across = Scale(times[0], times[-1] + step, LEFT, WIDTH - RIGHT)
    most = max((sum(values[i] for values in series.values()) for i in range(len(times))), default=0) / step
    up = Scale(0, most, HEIGHT - BOTTOM, TOP)
    out = [time_axis(across), value_axis(up, unit="/s")]
    wide = max(1.0, across(times[0] + step) - across(times[0]) - 0.6)
    for i, moment in enumerate(times):
        base = 0.0
        for name, values in series.items():
            rate = values[i] / step
            if rate:
                top = up(base + rate)
                told = title(f"{name}: {count(values[i])} in {step:g} s")
                out.append(tag("rect", told, x=across(moment), y=top, width=wide, height=up(base) - top, class_=f"o-{name}"))
            base += rate
    return picture("".join(out), label)


def lines(times: Series, series: Mapping[str, Series], label: str) -> str:
    """Durations over time on a logarithmic scale; a value of 0 leaves a gap."""
    values = [value for row in series.values() for value in row if value > 0]
    if not times or not values:
        return nothing(label)
    across = Scale(times[0], times[-1] if len(times) > 1 else times[0] + 1, LEFT, WIDTH - RIGHT)
    up = Scale(10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values))), HEIGHT - BOTTOM, TOP, log=True)
    out = [time_axis(across), value_axis(up, unit="us")]
    for number, (name, row) in enumerate(series.items()):
        stretch: list[tuple[float, float]] = []
        for moment, value in [*zip(times, row, strict=True), (0.0, 0.0)]:
            if value > 0:
                stretch.append((across(moment), up(value)))
            elif stretch:
                if len(stretch) == 1:
                    out.append(tag("circle", title(name), cx=stretch[0][0], cy=stretch[0][1], r=2, class_=f"dot line-{number}"))
                out.append(tag("polyline", title(name), points=points(stretch), class_=f"line line-{number}"))
                stretch = []
        last = next(((m, v) for m, v in zip(reversed(times), reversed(row), strict=True) if v > 0), None)
        if last is not None:
            out.append(text(min(across(last[0]) + 4, WIDTH - 28), up(last[1]) - 4, name, class_=f"name name-{number}"))
    return picture("".join(out), label)


def heat(times: Series, step: float, cells: Mapping[tuple[int, int], float], ratio: float, label: str) -> str:
    """Latencies over time as a heat map: ``cells`` maps (index of the time, bucket) to a count; bucket n is ``ratio ** n`` microseconds."""
    if not times or not cells:
        return nothing(label)
    per_row = max(1, round(math.log(10) / math.log(ratio) / 8))  # eight rows to a power of ten
    rows: dict[tuple[int, int], float] = {}
    for (i, bucket), number in cells.items():
        key = (i, bucket // per_row)
        rows[key] = rows.get(key, 0) + number
    low = min(row for _, row in rows)
    high = max(row for _, row in rows) + 1
    across = Scale(times[0], times[-1] + step, LEFT, WIDTH - RIGHT)
    up = Scale(ratio ** (low * per_row), ratio ** (high * per_row), HEIGHT - BOTTOM, TOP, log=True)
    most = max(rows.values())
    wide = max(1.0, across(times[0] + step) - across(times[0]))
    out = [time_axis(across), value_axis(up, unit="us")]
    for (i, row), number in sorted(rows.items()):
        top, bottom = up(ratio ** ((row + 1) * per_row)), up(ratio ** (row * per_row))
        strength = 0.15 + 0.85 * math.log1p(number) / math.log1p(most)
        told = title(f"{count(number)} took {duration(ratio ** (row * per_row))} to {duration(ratio ** ((row + 1) * per_row))}")
        out.append(
            tag("rect", told, x=across(times[i]), y=top, width=wide, height=max(1.0, bottom - top), class_="heat", fill_opacity=strength)
        )
    return picture("".join(out), label)


def bars(rows: Sequence[tuple[str, float, str, bool]], label: str) -> str:
    """Horizontal bars: (name, part of 1, words beside it, whether it is marked)."""
    if not rows:
        return nothing(label)
    height = 22 * len(rows) + 8
    out: list[str] = []
    for i, (name, part, words, marked) in enumerate(rows):
        y = 4 + 22 * i
        out.append(text(150, y + 14, name[:24], class_="tick", text_anchor="end"))
        out.append(tag("rect", x=158, y=y + 3, width=400, height=14, class_="track"))
        out.append(
            tag("rect", title(words), x=158, y=y + 3, width=400 * min(max(part, 0.0), 1.0), height=14, class_="marked" if marked else "bar")
        )
        out.append(text(566, y + 14, words, class_="tick"))
    return picture("".join(out), label, height=height)


def waterfall(parts: Sequence[tuple[str, float, float, str]], total: float, label: str) -> str:
    """One request's life: (kind, from, to, words), in microseconds from its acceptance; the kind is a CSS class."""
    across = Scale(0, max(total, 1), 0, WIDTH)
    out = [tag("rect", x=0, y=4, width=WIDTH, height=18, class_="track")]
    for kind, start, end, words in parts:
        wide = max(1.5, across(end) - across(start))
        out.append(tag("rect", title(words), x=across(start), y=4, width=wide, height=18, class_=f"w-{kind}"))
        if wide > 7 * len(words):
            out.append(text(across(start) + 5, 17, words, class_="inside"))
    return picture("".join(out), label, height=26)


def graph(edges: Sequence[tuple[str, str, str, float, str]], label: str) -> str:
    """Who calls what: (client, service, worker, how often, words) drawn in three columns, an edge as wide as its traffic."""
    if not edges:
        return nothing(label)
    columns: list[dict[str, float]] = [{}, {}, {}]
    for client, service, worker, number, _ in edges:
        for column, name in zip(columns, (client, service, worker), strict=True):
            column[name] = column.get(name, 0) + number
    tallest = max(len(column) for column in columns)
    height = 30 * tallest + 20
    place: list[dict[str, float]] = []
    for column in columns:
        gap = (height - 20) / len(column)
        place.append({name: 10 + gap * (i + 0.5) for i, name in enumerate(sorted(column, key=lambda n: -column[n]))})
    xs = (120.0, 360.0, 600.0)
    most = max(number for *_, number, _ in edges)
    flows: dict[tuple[int, str, str], tuple[float, str]] = {}
    for client, service, worker, number, words in edges:
        for i, (a, b) in enumerate(((client, service), (service, worker))):
            before = flows.get((i, a, b), (0.0, words))
            flows[i, a, b] = (before[0] + number, words)
    out: list[str] = []
    for (i, a, b), (number, words) in flows.items():
        y1, y2 = place[i][a], place[i + 1][b]
        x1, x2 = xs[i] + 62, xs[i + 1] - 62
        half = (x1 + x2) / 2
        out.append(
            tag(
                "path",
                title(f"{a} to {b}: {count(number)}; {words}"),
                d=f"M{x1:.0f} {y1:.1f} C{half:.0f} {y1:.1f} {half:.0f} {y2:.1f} {x2:.0f} {y2:.1f}",
                class_="flow",
                stroke_width=1 + 9 * math.sqrt(number / most),
            )
        )
    for i, column in enumerate(place):
        for name, y in column.items():
            told = title(f"{name}: {count(columns[i][name])}")
            out.append(tag("rect", told, x=xs[i] - 62, y=y - 11, width=124, height=22, rx=5, class_="node"))
            out.append(text(xs[i], y + 4, name if len(name) < 19 else name[:17] + "…", class_="node-name", text_anchor="middle"))
    return picture("".join(out), label, height=height)


def nothing(label: str) -> str:
    return picture(text(WIDTH / 2, 34, "nothing to show", class_="tick", text_anchor="middle"), label, height=60)
