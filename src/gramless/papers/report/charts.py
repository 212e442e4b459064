"""Line charts as the shapes of an inline SVG: crisp at any size, coloured by the page's style sheet, light or dark.

Sizes are in the chart's own units, and text is twelve of them: draw a chart at about the size it is shown at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gramless.papers.report.scales import Scale, fit_scale
from gramless.papers.report.words import plain_number

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
    """A figure the paper gives for the whole chart: a dashed horizontal line."""

    y: float
    name: str
    spread: float | None = None


@dataclass(frozen=True)
class Mark:
    """A figure the paper gives for one x."""

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
    share: bool = False

    def reach(self) -> tuple[list[float], list[float]]:
        """Every x and every y that must lie within the axes; of a percentage, bands are cut at 0 and 100."""
        xs = [x for line in self.lines for x in line.x] + [mark.x for mark in self.marks]
        ys = [mark.y for mark in self.marks] + [rule.y for rule in self.rules]
        for line in self.lines:
            ys += line.y
            ys += [self.clipped(y - s) for y, s in zip(line.y, line.spread, strict=False)]
            ys += [self.clipped(y + s) for y, s in zip(line.y, line.spread, strict=False)]
        return xs, ys

    def clipped(self, y: float) -> float:
        return min(max(y, 0.0), 100.0) if self.share else y


@dataclass(frozen=True)
class Shape:
    """One element of an SVG: its attributes, and what it says when pointed at."""

    tag: str
    attributes: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    text: str = ""


def draw(chart: Chart, width: int = 420, height: int = 280, kind: str = "", beside: Sequence[Chart] = ()) -> dict[str, Any]:
    """The chart's shapes, on axes that also hold the charts `beside` it, to be compared by eye."""
    right, top, bottom = 14, 14, 46
    reached = [one.reach() for one in (chart, *beside)]
    xs, ys = [x for one in reached for x in one[0]], [y for one in reached for y in one[1]]
    y = fit_scale(ys, height - bottom, top, log=chart.log_y, bounds=(0.0, 100.0) if chart.share else None)
    left = max(62, 32 + 7 * max(len(plain_number(tick)) for tick in y.ticks()))  # the axis's name, then its longest number
    x = fit_scale(xs, left, width - right, log=chart.log_x, pad=0.03)
    shapes = _axes(chart, x, y, width, height, left, right, bottom)
    for rule in chart.rules:
        shapes += _rule(rule, y, left, width - right)
    shapes += [_band(line, x, y) for line in chart.lines if any(line.spread)]
    under = covered(chart, x, y)
    for line in chart.lines:
        shapes += _line(line, x, y, under.get(line.name, 0))
    shapes += [_mark(mark, x, y) for mark in chart.marks]
    about = f"{chart.title}: {chart.y_label} against {chart.x_label}"
    return {"about": about, "kind": kind, "width": width, "height": height, "shapes": shapes}


def covered(chart: Chart, x: Scale, y: Scale) -> dict[str, int]:
    """How many earlier lines each line hides: those that stay within two pixels of it."""
    hidden: dict[str, int] = {}
    for k, line in enumerate(chart.lines):
        before = [other for other in chart.lines[:k] if _coincide(other, line, y)]
        if before:
            hidden[line.name] = len(before)
    return hidden


def _coincide(one: Line, other: Line, y: Scale) -> bool:
    if list(one.x) != list(other.x):
        return False
    pixels = ([y(max(value, y.low) if y.log else value) for value in line.y] for line in (one, other))
    return all(abs(a - b) < 2 for a, b in zip(*pixels, strict=True))


def legend(chart: Chart) -> list[dict[str, str]]:
    """Names beside their colours; nothing when there is one unnamed line."""
    names = [{"kind": f"swatch c{line.colour}", "sign": "", "name": line.name} for line in chart.lines if line.name]
    if chart.rules:
        names.append({"kind": "swatch says", "sign": "", "name": chart.rules[0].name})
    if chart.marks:
        names.append({"kind": "diamond", "sign": "◇", "name": "paper"})
    return names


def _axes(chart: Chart, x: Scale, y: Scale, width: int, height: int, left: int, right: int, bottom: int) -> list[Shape]:
    base, end = height - bottom, width - right

    def line(kind: str, x1: float, x2: float, y1: float, y2: float) -> Shape:
        return Shape("line", {"class": kind, "x1": x1, "x2": x2, "y1": y1, "y2": y2})

    def text(words: str, kind: str, at_x: float, at_y: float, **turned: str) -> Shape:
        return Shape("text", {"x": at_x, "y": at_y, **turned, "class": kind}, text=words)

    parts = []
    for tick in y.ticks():
        at = round(y(tick), 1)
        parts += [line("grid", left, end, at, at), text(plain_number(tick), "tick end", left - 8, at + 4)]
    inside = [tick for tick in chart.x_ticks if x.low <= tick <= x.high]
    for tick in inside if 1 < len(inside) <= width // 56 else x.ticks(min(max(width // 75, 4), 8)):
        at = round(x(tick), 1)
        parts += [line("notch", at, at, base, base + 4), text(plain_number(tick), "tick middle", at, base + 18)]
    parts.append(line("axis", left, end, base, base))
    parts.append(text(chart.x_label, "name middle", (left + end) / 2, height - 8))
    parts.append(text(chart.y_label, "name middle", 12, base / 2 + 4, transform=f"rotate(-90 12 {base / 2})"))
    return parts


def _rule(rule: Rule, y: Scale, start: float, end: float) -> list[Shape]:
    parts = []
    if rule.spread:
        top = y(rule.y + rule.spread)
        bottom = y(max(rule.y - rule.spread, y.low))
        place = {"x": start, "width": end - start, "y": round(top, 1), "height": round(bottom - top, 1)}
        parts.append(Shape("rect", {"class": "says-band", **place}))
    at = round(y(rule.y), 1)
    parts.append(Shape("line", {"class": "says", "x1": start, "x2": end, "y1": at, "y2": at}, f"{rule.name} {rule.y:g}"))
    return parts


def _band(line: Line, x: Scale, y: Scale) -> Shape:
    def clip(value: float) -> float:
        return min(max(value, y.low), y.high)

    upper = [(x(a), y(clip(b + s))) for a, b, s in zip(line.x, line.y, line.spread, strict=True)]
    lower = [(x(a), y(clip(b - s))) for a, b, s in zip(line.x, line.y, line.spread, strict=True)]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in upper + lower[::-1])
    return Shape("polygon", {"points": points, "class": f"band c{line.colour}"})


def _line(line: Line, x: Scale, y: Scale, over: int = 0) -> list[Shape]:
    """The line and its points. Two points are no course: they are not joined. A line over others of the same course is
    dashed, with longer gaps the more there are, so that those below show.
    """
    keep = range(len(line.x))
    if len(keep) > MOST_POINTS:
        keep = sorted({round(k * (len(line.x) - 1) / (MOST_POINTS - 1)) for k in range(MOST_POINTS)})  # type: ignore[assignment]
    pixels = [(x(line.x[k]), y(max(line.y[k], y.low) if y.log else line.y[k])) for k in keep]
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in pixels)
    dashes = {"stroke-dasharray": f"5 {5 * over}"} if over else {}
    kind = f"line c{line.colour}" + (" over" if over else "")
    parts = [Shape("path", {"d": path, "class": kind, **dashes}, line.name or "line")] if len(pixels) > 2 else []
    if len(pixels) <= MOST_MARKERS:
        for k, (a, b) in zip(keep, pixels, strict=True):
            place = {"cx": f"{a:.1f}", "cy": f"{b:.1f}", "r": 3.2, "class": f"dot c{line.colour}"}
            parts.append(Shape("circle", place, f"{line.name} {plain_number(line.x[k])}: {line.y[k]:.4g}".strip()))
    return parts


def _mark(mark: Mark, x: Scale, y: Scale) -> Shape:
    a, b, r = x(mark.x), y(mark.y), 5.5
    points = f"{a:.1f},{b - r:.1f} {a + r:.1f},{b:.1f} {a:.1f},{b + r:.1f} {a - r:.1f},{b:.1f}"
    return Shape("polygon", {"points": points, "class": f"mark c{mark.colour}"}, f"{mark.name} {mark.y:g}")
