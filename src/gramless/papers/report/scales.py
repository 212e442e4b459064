"""From data to pixels: linear and logarithmic axes with round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Differences as small as these cannot be divided by.
_NOTHING = 1e-300


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [start, end] pixels, in logarithms when `log`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, value = (
            (math.log(self.low), math.log(self.high), math.log(value)) if self.log else (self.low, self.high, value)
        )
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """About `wanted` round values within the range."""
        return _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high, wanted)


def fit_scale(
    values: Sequence[float],
    start: float,
    end: float,
    *,
    log: bool = False,
    pad: float = 0.06,
    bounds: tuple[float, float] | None = None,
) -> Scale:
    """A scale around `values`, with a little air; a single value gets an axis too. The axis stays within `bounds`, such as 0
    and 100 of a percentage, as far as the values do.
    """
    low, high = min(values), max(values)
    scale = _around(values, low, high, start, end, log, pad)
    if bounds is None:
        return scale
    return Scale(max(scale.low, min(bounds[0], low)), min(scale.high, max(bounds[1], high)), start, end, scale.log)


def _around(values: Sequence[float], low: float, high: float, start: float, end: float, log: bool, pad: float) -> Scale:
    if log:
        positive = [value for value in values if value > 0]
        if positive:
            low, high = min(positive), max(max(positive), min(positive) * 2)
            grow = (high / low) ** pad
            return Scale(low / grow, high * grow, start, end, log=True)
    if high - low < _NOTHING:
        room = 0.5 * (abs(high) if abs(high) > _NOTHING else 1.0)
        low, high = low - room, high + room
    air = (high - low) * pad
    floor = 0.0 if low >= 0 and low - air < 0 else low - air
    return Scale(floor, high + air, start, end)


def _linear_ticks(low: float, high: float, wanted: int) -> list[float]:
    rough = (high - low) / max(wanted, 1)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(s * magnitude for s in (1, 2, 2.5, 5, 10) if s * magnitude >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for marks in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        ticks = [mark * 10.0**d for d in decades for mark in marks]
        inside = [float(f"{tick:.6g}") for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(inside) >= 3:
            return inside[:: max(1, len(inside) // 6)]
    # Less than a factor of two or so: round steps read better than odd fractions of a decade.
    return _linear_ticks(low, high, 4)
