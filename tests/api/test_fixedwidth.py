"""Go's numbers, at the edges."""

import math

import pytest

from hpad.api import quantity


@pytest.mark.parametrize(
    ("number", "low"), [(2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (-(2**31) - 1, 2**31 - 1), (2**32 + 5, 5)]
)
def test_int32_keeps_the_low_bits(number: int, low: int) -> None:
    assert quantity.int32(number) == low


def test_int64_keeps_the_low_bits() -> None:
    assert quantity.int64(2**63) == -(2**63)
    assert quantity.int64(2**64 + 1) == 1


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 2.0**31, -(2.0**40)])
def test_a_float_that_does_not_fit_becomes_the_most_negative_number(number: float) -> None:
    assert quantity.ceil_int32(number) == quantity.float_to_int32(number) == quantity.MIN_INT32


@pytest.mark.parametrize(("number", "up", "cut"), [(1.2, 2, 1), (-1.2, -1, -1), (0.0, 0, 0), (3.0, 3, 3)])
def test_rounding(number: float, up: int, cut: int) -> None:
    assert (quantity.ceil_int32(number), quantity.ceil_int64(number), quantity.float_to_int32(number)) == (up, up, cut)


def test_the_edge_of_int64() -> None:
    assert quantity.ceil_int64(float(2**63)) == quantity.MIN_INT64
    assert quantity.ceil_int64(-float(2**63)) == quantity.MIN_INT64
    assert quantity.ceil_int64(math.nan) == quantity.MIN_INT64


@pytest.mark.parametrize(("dividend", "cut"), [(7, 3), (-7, -3), (0, 0)])
def test_division_rounds_towards_zero(dividend: int, cut: int) -> None:
    assert quantity.truncated(dividend, 2) == cut


def test_division_by_zero_is_no_error() -> None:
    assert quantity.quotient(1.0, 0.0) == math.inf
    assert quantity.quotient(-1.0, 0.0) == -math.inf
    assert math.isnan(quantity.quotient(0.0, 0.0))
    assert quantity.quotient(1.0, 4.0) == 0.25
