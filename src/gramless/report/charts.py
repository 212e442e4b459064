"""Line charts as inline SVG: crisp at any size, coloured by the page's style sheet, light or dark.

Sizes are in the chart's own units, and text is twelve of them: draw a chart at about the size it is shown at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gramless.report.html import Markup, element, join
from gramless.report.scales import Scale, fit_scale
from gramless.report.words import plain_number

MOST_POINTS = 300
MOST_MARKERS = 14


@dataclass(frozen=True)
class Line:
    """One series: points in order of x, an optional half-width of its band, and its colour's number."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    colour: int = 0


@dataclass(frozen=True)
class Rule:
    """A figure the document gives for the whole chart: a dashed horizontal line."""

    y: float
    name: str
    spread: float | None = None


@dataclass(frozen=True)
class Mark:
    """A figure the document gives for one x."""

    x: float
    y: float
    name: str
    colour: int = 0


@dataclass(frozen=True)
class Chart:
    """What one line chart shows."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    rules: Sequence[Rule] = ()
    marks: Sequence[Mark] = ()
    log_x: bool = False
    log_y: bool = False
    x_ticks: Sequence[float] = ()

    def reach(self) -> tuple[list[float], list[float]]:
        """Every x and every y that must lie within the axes."""
        xs = [x for line in self.lines for x in line.x] + [mark.x for mark in self.marks]
        ys = [mark.y for mark in self.marks] + [rule.y for rule in self.rules]
        for line in self.lines:
            ys += line.y
            ys += [y - s for y, s in zip(line.y, line.spread, strict=False)]
            ys += [y + s for y, s in zip(line.y, line.spread, strict=False)]
        return xs, ys


def draw(chart: Chart, width: int = 420, height: int = 280, class_: str = "", beside: Sequence[Chart] = ()) -> Markup:
    """The chart as an `svg` element, on axes that also hold the charts `beside` it, to be compared by eye."""
    right, top, bottom = 14, 14, 46
    reached = [one.reach() for one in (chart, *beside)]
    xs, ys = [x for one in reached for x in one[0]], [y for one in reached for y in one[1]]
    y = fit_scale(ys, height - bottom, top, log=chart.log_y)
    left = max(62, 32 + 7 * max(len(plain_number(tick)) for tick in y.ticks()))  # the axis's name, then its longest number
    x = fit_scale(xs, left, width - right, log=chart.log_x, pad=0.03)
    about = f"{chart.title}: {chart.y_label} against {chart.x_label}"
    return element(
        "svg",
        element("title", about),
        _axes(chart, x, y, width, height, left, right, bottom),
        join(_rule(rule, y, left, width - right) for rule in chart.rules),
        join(_band(line, x, y) for line in chart.lines if any(line.spread)),
        join(_line(line, x, y) for line in chart.lines),
        join(_mark(mark, x, y) for mark in chart.marks),
        class_=f"chart {class_}".strip(),
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=about,
    )


def legend(chart: Chart) -> Markup | None:
    """Names beside their colours, as HTML so that they wrap; nothing when there is one unnamed line."""
    names = [element("li", element("span", class_=f"swatch c{line.colour}"), line.name) for line in chart.lines if line.name]
    if chart.rules:
        names.append(element("li", element("span", class_="swatch says"), chart.rules[0].name))
    if chart.marks:
        names.append(element("li", element("span", "◇", class_="diamond"), "document"))
    return element("ul", *names, class_="legend") if names else None


def _axes(chart: Chart, x: Scale, y: Scale, width: int, height: int, left: int, right: int, bottom: int) -> Markup:
    base = height - bottom
    parts = []
    for tick in y.ticks():
        at = round(y(tick), 1)
        parts.append(element("line", class_="grid", x1=left, x2=width - right, y1=at, y2=at))
        parts.append(element("text", plain_number(tick), x=left - 8, y=at + 4, class_="tick end"))
    inside = [tick for tick in chart.x_ticks if x.low <= tick <= x.high]
    for tick in inside if 1 < len(inside) <= width // 56 else x.ticks(min(max(width // 75, 4), 8)):
        at = round(x(tick), 1)
        parts.append(element("line", class_="notch", x1=at, x2=at, y1=base, y2=base + 4))
        parts.append(element("text", plain_number(tick), x=at, y=base + 18, class_="tick middle"))
    parts.append(element("line", class_="axis", x1=left, x2=width - right, y1=base, y2=base))
    middle = (left + width - right) / 2
    parts.append(element("text", chart.x_label, x=middle, y=height - 8, class_="name middle"))
    turn = f"rotate(-90 12 {base / 2})"
    parts.append(element("text", chart.y_label, x=12, y=base / 2 + 4, transform=turn, class_="name middle"))
    return join(parts)


def _rule(rule: Rule, y: Scale, start: float, end: float) -> Markup:
    parts = []
    if rule.spread:
        top = y(rule.y + rule.spread)
        bottom = y(max(rule.y - rule.spread, y.low))
        parts.append(
            element(
                "rect",
                class_="says-band",
                x=start,
                width=end - start,
                y=round(top, 1),
                height=round(bottom - top, 1),
            )
        )
    at = round(y(rule.y), 1)
    said = element("title", f"{rule.name} {rule.y:g}")
    parts.append(element("line", said, class_="says", x1=start, x2=end, y1=at, y2=at))
    return join(parts)


def _band(line: Line, x: Scale, y: Scale) -> Markup:
    def clip(value: float) -> float:
        return min(max(value, y.low), y.high)

    upper = [(x(a), y(clip(b + s))) for a, b, s in zip(line.x, line.y, line.spread, strict=True)]
    lower = [(x(a), y(clip(b - s))) for a, b, s in zip(line.x, line.y, line.spread, strict=True)]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in upper + lower[::-1])
    return element("polygon", points=points, class_=f"band c{line.colour}")


def _line(line: Line, x: Scale, y: Scale) -> Markup:
    keep = range(len(line.x))
    if len(keep) > MOST_POINTS:
        keep = sorted({round(k * (len(line.x) - 1) / (MOST_POINTS - 1)) for k in range(MOST_POINTS)})  # type: ignore[assignment]
    pixels = [(x(line.x[k]), y(max(line.y[k], y.low) if y.log else line.y[k])) for k in keep]
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in pixels)
    parts = [element("path", element("title", line.name or "line"), d=path, class_=f"line c{line.colour}")]
    if len(pixels) <= MOST_MARKERS:
        for k, (a, b) in zip(keep, pixels, strict=True):
            said = element("title", f"{line.name} {plain_number(line.x[k])}: {line.y[k]:.4g}".strip())
            parts.append(element("circle", said, cx=f"{a:.1f}", cy=f"{b:.1f}", r=3.2, class_=f"dot c{line.colour}"))
    return join(parts)


def _mark(mark: Mark, x: Scale, y: Scale) -> Markup:
    a, b, r = x(mark.x), y(mark.y), 5.5
    points = f"{a:.1f},{b - r:.1f} {a + r:.1f},{b:.1f} {a:.1f},{b + r:.1f} {a - r:.1f},{b:.1f}"
    said = element("title", f"{mark.name} {mark.y:g}")
    return element("polygon", said, points=points, class_=f"mark c{mark.colour}")
