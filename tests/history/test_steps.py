"""Tests of step detection: what is believed, when, and what is not."""

from __future__ import annotations

import math
from random import Random

import pytest

from harness.history.changes import ERROR_STEPS, TIME_STEPS
from harness.history.steps import Detector, Step, pooled_noise, spread

TIMES, ERRORS = TIME_STEPS, ERROR_STEPS


def even(random: Random, count: int, level: float = 0.0) -> list[float]:
    """Logarithms of values that scatter evenly within 10 %."""
    return [level + math.log(1 + 0.1 * random.uniform(-1, 1)) for _ in range(count)]


def first_seen(detector: Detector, series: list[float], peers: float = 0.0) -> tuple[int, int] | None:
    """Return the length at which a step is first reported, and its start."""
    for end in range(1, len(series) + 1):
        step = detector.at_end(series[:end], peers)
        if step is not None:
            return end, step.start
    return None


def test_a_step_of_a_deterministic_series_shows_at_once() -> None:
    assert ERRORS.at_end([1.0] * 9 + [1.2]) == Step(9, 1.0, 1.2)
    assert first_seen(ERRORS, [1.0] * 9 + [1.03] * 3) == (11, 9)
    assert first_seen(ERRORS, [1.0] * 9 + [1.006] * 20) is None


def test_a_step_is_reported_once() -> None:
    series = [1.0] * 9 + [1.2] * 40
    assert [end for end in range(1, 50) if ERRORS.at_end(series[:end])] == [10]


def test_each_of_several_steps_is_reported() -> None:
    series = [0.0] * 8 + [1.0] * 8 + [0.2] * 8
    assert [end for end in range(1, 25) if ERRORS.at_end(series[:end])] == [9, 17]


def test_one_disturbed_time_is_no_step() -> None:
    random = Random(1)
    series = even(random, 30)
    series[20] += math.log(3)
    assert first_seen(TIMES, series) is None


@pytest.mark.parametrize("seed", range(20))
def test_ten_percent_noise_raises_no_alarm_and_forty_percent_is_seen_in_two_runs(seed: int) -> None:
    random = Random(seed)
    peers = pooled_noise([even(random, 30) for _ in range(20)], TIMES.floor)
    quiet = even(random, 60)
    assert first_seen(TIMES, quiet, peers) is None
    at = random.randrange(20, 50)
    slower = quiet[:at] + [value + math.log(1.4) for value in quiet[at:]]
    end, start = first_seen(TIMES, slower, peers) or (0, 0)
    assert (start, end <= at + 2) == (at, True)


def test_a_short_history_says_nothing() -> None:
    assert ERRORS.at_end([]) is None
    assert ERRORS.at_end([1.0] * 4 + [9.0]) is None


def test_spread_resists_an_outlier() -> None:
    random = Random(3)
    values = [random.gauss(0, 1) for _ in range(30)]
    assert spread(values) == pytest.approx(1.0, abs=0.3)
    assert spread([*values, 1000.0]) == pytest.approx(spread(values), rel=0.2)


def test_peers_that_repeat_lend_no_noise() -> None:
    random = Random(4)
    noisy = [even(random, 30) for _ in range(4)]
    assert pooled_noise([[1.0] * 30] * 50, 0.03) == 0.0
    assert pooled_noise([*noisy, *[[1.0] * 30] * 50], 0.03) == pooled_noise(noisy, 0.03) > 0.05
