"""Moments and sums in words."""

import pytest

from fedbourse.dashboard.formatting import capital, in_credits, relative, span

HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "less than a minute"),
        (59, "less than a minute"),
        (59.999, "1 minute"),
        (60, "1 minute"),
        (299.9, "5 minutes"),
        (HOUR - 1, "1 hour"),
        (5400, "1 hour 30 minutes"),
        (DAY - 1, "1 day"),
        (DAY, "1 day"),
        (1.5 * DAY, "1 day 12 hours"),
        (30 * DAY - 1, "1 month"),
        (366 * DAY, "1 year"),
        (729 * DAY, "2 years"),
        (500 * DAY, "1 year 4 months"),
    ],
)
def test_spans_are_rounded_to_the_nearest(seconds, words) -> None:
    assert span(seconds) == words


def test_a_deadline_that_was_just_set_is_as_far_away_as_it_was_set() -> None:
    assert relative(DAY * 1000, 40) == "in 1 day"


def test_only_the_first_letter_changes() -> None:
    assert capital("found IBAN") == "Found IBAN"
    assert capital("") == ""
    assert in_credits(1_000_000) == "1 credit"
    assert in_credits(0) == "0 credits"
