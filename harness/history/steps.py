"""Steps in a noisy series: has the level changed, and since which run?

The series are logarithms, so a step is a factor. A step is judged by the noise of the series itself (and of
its peers, see `pooled_noise`), never by a fixed percentage: see `Detector`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

WINDOW = 30
"""Values of a level that are looked at; older ones add little and may have crept."""
MINIMUM = 5
"""Values that a level needs before anything can differ from it."""
_KEPT = 0.9
_GAUSSIAN = 1.27
"""Root mean square of a Gaussian over that of its `_KEPT` smallest residuals (simulated, 10 to 30 values)."""
PEERS_LOOKED_AT = 500
"""Series that are enough to know what noise is usual."""
_PEERS = 20
"""Weight of the peers' noise, in values."""


@dataclass(frozen=True)
class Step:
    """A change of level at the end of a series."""

    start: int
    """Index of the first value at the new level."""
    before: float
    after: float
    """Levels, in the series' own unit (logarithms)."""


@dataclass(frozen=True)
class Detector:
    """When a change of level is believed.

    A new level of two or three values is believed when its mean lies ``threshold`` standard errors from the
    old level's center (a little more after a short history) and each value lies two deviations beyond it on
    the same side. Simulated on 90,000 nights that scatter evenly within 10 %, 4.2 gives no false alarm, and a
    step of 40 % shows at the second value; of Gaussian scatter with a deviation of 10 % one night in 18,000
    looks like a step, and a step of 40 % takes two to four values. No rule can have both there.
    """

    floor: float
    """Smallest standard deviation assumed: a series without noise is not infinitely certain."""
    threshold: float
    sudden: float | None = None
    """Deviations at which one value alone is believed after a level that repeats; None: never, since one run
    can be disturbed."""

    def noise(self, level: Sequence[float], peers: float) -> float:
        """Return the standard deviation to assume for a level, given that of its peers."""
        if self._quiet(level):
            return self.floor
        own = spread(level)
        shrunk = math.sqrt((len(level) * own**2 + _PEERS * peers**2) / (len(level) + _PEERS))
        return max(own, shrunk, self.floor)

    def _quiet(self, level: Sequence[float]) -> bool:
        """Tell whether a level repeats, as a deterministic device's does, whatever its peers do."""
        return max(level) - min(level) <= self.floor

    def at_end(self, series: Sequence[float], peers: float = 0.0) -> Step | None:
        """Return the step that the last value completes, or None.

        Earlier steps are walked through, so a step is reported with the value that makes it certain, once.
        """
        if len(series) <= MINIMUM or not self._restless(series):
            return None
        sums = [0.0, *accumulate(series)]
        start = max(0, len(series) - 2 * WINDOW)
        tails = (2, 3) if self.sudden is None else (1, 2, 3)
        least = 1.5 * self.floor
        found: Step | None = None
        for end in range(start + MINIMUM + 1, len(series) + 1):
            found = None
            last = series[end - 1]
            for tail in tails:
                split = end - tail
                low = max(start, split - WINDOW)
                if split - low < MINIMUM:
                    break
                mean = (sums[split] - sums[low]) / (split - low)
                if abs(last - mean) > least and _leaves(series[split:end], mean, least):
                    found = self._step(series, low, split, end, peers)
                    if found is not None:
                        start = found.start
                        break
        return found

    def _restless(self, series: Sequence[float]) -> bool:
        """Tell whether the last values leave the few before them: without that there is no step now."""
        for tail in (2, 3) if self.sudden is None else (1, 2, 3):
            level = series[-tail - MINIMUM : -tail]
            if level and _leaves(series[-tail:], sum(level) / len(level), 0.7 * self.floor):
                return True
        return False

    def _step(self, series: Sequence[float], low: int, split: int, end: int, peers: float) -> Step | None:
        level, new = series[low:split], series[split:end]
        middle, after = center(level), sum(new) / len(new)
        noise = self.noise(level, peers)
        error = noise * math.sqrt(1 / len(new) + 1 / (_KEPT * len(level)))
        if len(new) == 1 and not (self.sudden and self._quiet(level)):
            return None
        needed = (self.sudden or 0.0) if len(new) == 1 else self.threshold * (1 + 1 / len(level))
        side = math.copysign(1.0, after - middle)
        if abs(after - middle) <= needed * error or any(side * (v - middle) <= 2 * noise for v in new):
            return None
        likeliest = min(
            range(max(low + MINIMUM, split - 2), end), key=lambda at: _scatter(series[low:at], series[at:end])
        )
        return Step(likeliest, middle, center(series[likeliest:end]))


def _leaves(new: Sequence[float], mean: float, least: float) -> bool:
    """Tell cheaply whether values leave a level at all; what does not cannot be a step."""
    return min(new) > mean + least or max(new) < mean - least


def _scatter(*levels: Sequence[float]) -> float:
    """Return the sum of squared residuals of levels about their own means."""
    means = [sum(level) / len(level) for level in levels]
    return sum((value - mean) ** 2 for level, mean in zip(levels, means, strict=True) for value in level)


def spread(values: Sequence[float]) -> float:
    """Return a standard deviation that one outlier in ten does not move."""
    if len(values) < 2:
        return 0.0
    middle, kept = _nearest(values)
    return _GAUSSIAN * math.sqrt(sum((value - middle) ** 2 for value in kept) / len(kept))


def center(values: Sequence[float]) -> float:
    """Return a mean that one outlier in ten does not move."""
    _, kept = _nearest(values)
    return sum(kept) / len(kept)


def _nearest(values: Sequence[float]) -> tuple[float, list[float]]:
    """Return the median and the nine tenths of values that lie nearest to it."""
    ordered = sorted(values)
    count = len(ordered)
    middle = (ordered[count // 2] + ordered[(count - 1) // 2]) / 2
    low, high = 0, count
    for _ in range(min(count - math.ceil(_KEPT * count), count - 2)):
        if middle - ordered[low] > ordered[high - 1] - middle:
            low += 1
        else:
            high -= 1
    return middle, ordered[low:high]


def pooled_noise(series: Iterable[Sequence[float]], floor: float) -> float:
    """Return the upper quartile of the standard deviations of series that do scatter.

    It is what their peers lend to a short series, whose own scatter is hardly known yet.
    """
    long = (values[-WINDOW:] for values in series if len(values) >= MINIMUM)
    found = [spread(values) for values in islice(long, PEERS_LOOKED_AT)]
    noisy = sorted(value for value in found if value > floor)
    return noisy[3 * len(noisy) // 4] if noisy else 0.0
