"""Words that several texts share."""

import pytest

from hpad.engine import words


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.00001, "under 0.01 %"),
        (0.0004, "0.04 %"),
        (0.002, "0.2 %"),
        (0.025, "2.5 %"),
        (0.03, "3 %"),
        (0.0996, "10 %"),
        (0.312, "31 %"),
        (0.996, "99.6 %"),
        (0.99999, "99.9 %"),
        (1.0, "100 %"),
        (2.5, "250 %"),
        (-0.12, "-12 %"),
    ],
)
def test_a_share_has_the_digits_that_a_person_writes(share: float, text: str) -> None:
    assert words.percent(share) == text
