"""Amounts in messages."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpad.api.amounts import Unit, exact, rounded


@pytest.mark.parametrize(
    ("milli", "beside", "text"),
    [
        (449_996, 100_000, "450"),
        (99_996, 100_000, "99.996"),
        (100_000, 100_000, "100"),
        (100_004, 100_000, "100.004"),
        (Fraction(80_000, 3), 15_000, "26.7"),
        (1_234_567_000, 5_000, "1.23M"),
        (123_456_000, 5_000, "123456"),
        (1, 5_000, "0.001"),
        (0, 5_000, "0"),
        (-1_500, 0, "-1.5"),
    ],
)
def test_a_value_has_three_digits_or_as_many_as_it_takes_to_differ_from_its_target(
    milli: int, beside: int, text: str
) -> None:
    assert rounded(milli, beside) == text


@pytest.mark.parametrize(
    ("milli", "unit", "text"),
    [
        (15_000, Unit.COUNT, "15"),
        (10_500, Unit.COUNT, "10.5"),
        (1_500_000_000, Unit.COUNT, "1.5M"),
        (1_000_001_000, Unit.COUNT, "1000001"),
        (200, Unit.CORES, "200m"),
        (1_500, Unit.CORES, "1.5"),
        (64 * 2**20 * 1000, Unit.BYTES, "64Mi"),
        ((64 * 2**20 + 1) * 1000, Unit.BYTES, "67108865"),
        (0, Unit.BYTES, "0"),
    ],
)
def test_a_target_is_written_in_full(milli: int, unit: Unit, text: str) -> None:
    assert exact(milli, unit) == text


def test_cores_are_written_in_the_unit_of_their_target() -> None:
    assert rounded(1_250, 200, Unit.CORES) == "1250m"
    assert rounded(250, 2_000, Unit.CORES) == "0.25"


_SIZES = {"": 1, "m": Fraction(1, 1000), "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_SIZES |= {"M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}


def _read(text: str) -> Fraction:
    number = text.rstrip("mKMGTPEi")
    return Fraction(number) * _SIZES[text.removeprefix(number)]


@given(st.integers(0, 2**63), st.integers(1, 1000), st.integers(1, 2**63), st.sampled_from(Unit))
def test_rounding_never_moves_a_value_across_its_target(total: int, replicas: int, target: int, unit: Unit) -> None:
    share = Fraction(total, replicas)
    near, bound = _read(rounded(share, target, unit)), _read(exact(target, unit))
    assert bound * 1000 == target
    assert (near > bound, near < bound) == (share > target, share < target)
    assert abs(near * 1000 - share) <= share / 100
