"""The charts of the report. Each is a function from numbers to SVG, or to HTML if its text must stay readable on a phone."""

import math
from collections.abc import Iterable, Mapping, Sequence

from polydomo.pipeline.report.escape import escape
from polydomo.pipeline.report.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDE,
    WIDTH,
    Scale,
    TimeScale,
    duration,
    full,
    picture,
    points,
    tag,
    text,
    time_axis,
    title,
    value_axis,
)

Series = Sequence[float]


def stacked(times: Series, step: float, series: Mapping[str, Series], label: str, width: float = WIDTH) -> str:
    """Stacked columns over time, such as requests by outcome. The name of a series is its CSS class."""
    if not times:
        return nothing(label)
    across = TimeScale(times, step, LEFT, width - RIGHT)
    most = max((sum(values[i] for values in series.values()) for i in range(len(times))), default=0) / step
    up = Scale(0, most, HEIGHT - BOTTOM, TOP)
    out = [time_axis(across), value_axis(up, "/s", width)]
    wide = max(1.0, across.width - 0.6)
    for i, moment in enumerate(times):
        base = 0.0
        for name, values in series.items():
            rate = values[i] / step
            if rate:
                top = up(base + rate)
                tooltip = title(f"{name}: {full(values[i])} in {step:g} s")
                out.append(
                    tag("rect", tooltip, x=across(moment), y=top, width=wide, height=up(base) - top, class_=f"o-{name}")
                )
            base += rate
    return picture("".join(out), label, width)


def lines(times: Series, step: float, series: Mapping[str, Series], label: str) -> str:
    """Durations over time on a logarithmic scale; a value of 0 leaves a gap."""
    values = [value for row in series.values() for value in row if value > 0]
    if not times or not values:
        return nothing(label)
    across = TimeScale(times, step, LEFT, WIDTH - RIGHT)
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
    up = Scale(low, high, HEIGHT - BOTTOM, TOP, log=True)
    out = [time_axis(across), value_axis(up, "us")]
    for number, (name, row) in enumerate(series.items()):
        stretch: list[tuple[float, float]] = []
        before = times[0]
        for moment, value in [*zip(times, row, strict=True), (math.inf, 0.0)]:
            follows = moment - before < step * 1.5  # not across a cut
            before = moment
            if value > 0 and (follows or not stretch):
                stretch.append((across(moment + step / 2), up(value)))
            elif stretch:
                if len(stretch) == 1:
                    out.append(
                        tag("circle", title(name), cx=stretch[0][0], cy=stretch[0][1], r=2, class_=f"dot line-{number}")
                    )
                out.append(tag("polyline", title(name), points=points(stretch), class_=f"line line-{number}"))
                stretch = [(across(moment + step / 2), up(value))] if value > 0 else []
    return picture("".join(out), label)


def heat(times: Series, step: float, cells: Mapping[tuple[int, int], float], ratio: float, label: str) -> str:
    """Latencies over time as a heat map with its legend.

    ``cells`` maps (index of the time, bucket) to a count; bucket n begins at ``ratio ** n`` microseconds.
    """
    if not times or not cells:
        return nothing(label)
    per_row = max(1, round(math.log(10) / math.log(ratio) / 8))  # eight rows to a power of ten
    rows: dict[tuple[int, int], float] = {}
    for (i, bucket), number in cells.items():
        place = (i, bucket // per_row)
        rows[place] = rows.get(place, 0) + number
    low = min(row for _, row in rows)
    high = max(row for _, row in rows) + 1
    across = TimeScale(times, step, LEFT, WIDTH - RIGHT)
    up = Scale(ratio ** (low * per_row), ratio ** (high * per_row), HEIGHT - BOTTOM, TOP, log=True)
    most = max(rows.values())
    wide = max(1.0, across.width)
    out = [time_axis(across), value_axis(up, "us")]
    for (i, row), number in sorted(rows.items()):
        top, bottom = up(ratio ** ((row + 1) * per_row)), up(ratio ** (row * per_row))
        tooltip = title(
            f"{full(number)} took {duration(ratio ** (row * per_row))} to {duration(ratio ** ((row + 1) * per_row))}"
        )
        tall = max(1.0, bottom - top)
        shade = _strength(number, most)
        out.append(
            tag("rect", tooltip, x=across(times[i]), y=top, width=wide, height=tall, class_="heat", fill_opacity=shade)
        )
    return picture("".join(out), label) + _shades(most)


def _strength(number: float, most: float) -> float:
    return 0.15 + 0.85 * math.log1p(number) / math.log1p(most)


def _shades(most: float) -> str:
    """The legend of a heat map."""
    numbers = [10.0**n for n in range(math.ceil(math.log10(max(most, 1)))) if 10**n < most * 0.7]
    marks = ((f'class="shade" style="opacity:{_strength(n, most):.2f}"', full(n)) for n in [*numbers, most])
    return legend(marks, "requests per cell: ")


def legend(marks: Iterable[tuple[str, str]], head: str = "") -> str:
    """What the marks of a chart mean: the attributes of each mark, and its text."""
    spans = "".join(f"<span><i {attributes}></i>{escape(words)}</span>" for attributes, words in marks)
    return f'<p class="soft legend">{head}{spans}</p>'


def bars(rows: Sequence[tuple[str, float, str, bool]]) -> str:
    """Horizontal bars: (name, share from 0 to 1, label, whether it is highlighted)."""
    out = []
    for name, part, words, marked in rows:
        kind, wide = "marked" if marked else "bar", 100 * min(max(part, 0.0), 1.0)
        out.append(
            f'<div class="bar-row"><span class="bar-name">{escape(name)}</span>'
            f'<span class="bar-track"><i class="{kind}" style="width:{wide:.1f}%"></i></span>'
            f'<span class="bar-words">{escape(words)}</span></div>'
        )
    return "".join(out)


def waterfall_axis(longest: float) -> str:
    """The time scale that all waterfalls of the page share."""
    scale = Scale(0, max(longest, 1), 0, 100)
    ticks = "".join(
        f'<span style="left:{scale(value):.2f}%">{duration(value) if value else "0"}</span>' for value in scale.ticks()
    )
    return f'<div class="fall-axis">{ticks}</div>'


def waterfall(parts: Sequence[tuple[str, float, float, str]], longest: float, label: str) -> str:
    """The waterfall of one request: (kind, from, to, label), in microseconds from its acceptance. The kind is a CSS class."""
    across = Scale(0, max(longest, 1), 0, 100)
    drawn = ""
    for kind, start, end, words in parts:
        place = f"left:{across(start):.2f}%;width:{across(end) - across(start):.2f}%"
        drawn += f'<i class="w-{kind}" title="{escape(words)}" style="{place}"></i>'
    return f'<div class="fall" role="img" aria-label="{escape(label)}">{drawn}</div>'


def graph(edges: Sequence[tuple[str, str, str, float, str]], label: str) -> str:
    """A flow diagram of clients, services and workers: (kind, source, target, count, label). The width of an edge shows its traffic.

    ``asks`` leads from a client to a service, ``serves`` from a service to a worker, ``passes`` from a service to a service.
    """
    ends = {"asks": (0, 1), "serves": (1, 2), "passes": (1, 1)}
    if not edges:
        return nothing(label)
    columns: list[dict[str, float]] = [{}, {}, {}]
    for kind, source, target, number, _ in edges:
        for side, name in zip(ends[kind], (source, target), strict=True):
            share = number if (kind, side) in (("asks", 0), ("asks", 1), ("serves", 2)) else 0.0
            columns[side][name] = columns[side].get(name, 0.0) + share
    height = 30 * max(len(column) for column in columns) + 20
    place = _places(columns, edges, ends, height)
    most = max(number for *_, number, _ in edges)
    out: list[str] = []
    for kind, source, target, number, words in edges:
        a, b = ends[kind]
        y1, y2 = place[a][source], place[b][target]
        x1, x2 = _XS[a] + _HALF, _XS[b] - _HALF
        bend = (x1 + x2) / 2
        if a == b:  # out to the right and back
            x2, bend = x1, x1 + min(40, 14 + abs(y2 - y1) / 3)
        tooltip = title(f"{source} to {target}: {full(number)}; {words}")
        way = f"M{x1:.0f} {y1:.1f} C{bend:.0f} {y1:.1f} {bend:.0f} {y2:.1f} {x2:.0f} {y2:.1f}"
        out.append(tag("path", tooltip, d=way, class_=f"flow {kind}", stroke_width=1 + 9 * math.sqrt(number / most)))
    for i, column in enumerate(place):
        for name, y in column.items():
            tooltip = title(f"{name}: {full(columns[i][name])}")
            box = {"x": _XS[i] - _HALF, "y": y - 11, "width": 2 * _HALF, "height": 22, "rx": 5}
            short = name if len(name) < 30 else name[:28] + "…"
            out.append(tag("rect", tooltip, **box, class_="node"))
            out.append(text(_XS[i], y + 4, short, class_="node-name", text_anchor="middle"))
    return picture("".join(out), label, WIDE, height)


_HALF = 95.0  # of a node's width
_XS = (_HALF + 2, WIDE / 2, WIDE - _HALF - 2)


def _places(
    columns: Sequence[Mapping[str, float]],
    edges: Sequence[tuple[str, str, str, float, str]],
    ends: Mapping[str, tuple[int, int]],
    height: float,
) -> list[dict[str, float]]:
    """The vertical position of each node: clients by traffic, other nodes near their sources, so that few edges cross."""
    place: list[dict[str, float]] = []
    for i, column in enumerate(columns):
        pull: dict[str, list[float]] = {name: [0.0, 0.0] for name in column}
        for kind, source, target, number, _ in edges:
            if ends[kind] == (i - 1, i):
                pull[target][0] += number * place[i - 1][source]
                pull[target][1] += number
        order = sorted(
            column, key=lambda name: (pull[name][0] / pull[name][1] if pull[name][1] else height, -column[name], name)
        )
        gap = (height - 20) / max(len(column), 1)
        place.append({name: 10 + gap * (j + 0.5) for j, name in enumerate(order)})
    return place


def nothing(label: str) -> str:
    return picture(text(WIDTH / 2, 34, "nothing to show", class_="tick", text_anchor="middle"), label, height=60)
