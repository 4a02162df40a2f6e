"""Quantities and Go's integers: properties, and rules that the conformance vectors do not cover."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpad.api import quantity
from hpad.api.quantity import Format, Quantity, QuantityError, parse_milli

POWERS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "e3": Fraction(10**3), "E-2": Fraction(1, 100),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30),
}  # fmt: skip

numbers = st.tuples(
    st.integers(-(10**9), 10**9), st.integers(0, 9), st.sampled_from(sorted(POWERS))
)  # mantissa, decimal places, suffix
quantities = st.builds(Quantity, st.integers(-(10**25), 10**25), st.integers(-9, 20), st.sampled_from(Format)).filter(
    lambda quantity: quantity.format is not Format.BINARY_SI or abs(quantity.nano) < 2**63 * 10**9
)


def written(number: tuple[int, int, str]) -> str:
    mantissa, places, suffix = number
    digits = f"{abs(mantissa):0{places + 1}}"
    whole, fraction = digits[: len(digits) - places], digits[len(digits) - places :]
    return f"{'-' if mantissa < 0 else ''}{whole}{'.' if fraction else ''}{fraction}{suffix}"


def exact(number: tuple[int, int, str]) -> Fraction:
    """Returns the number, rounded away from zero to nano as a quantity is."""
    mantissa, places, suffix = number
    nanos = Fraction(mantissa, 10**places) * POWERS[suffix] * 10**9
    return Fraction(away_from_zero(nanos), 10**9)


def away_from_zero(number: Fraction) -> int:
    return -(-number // 1) if number > 0 else number // 1


@settings(deadline=None)
@given(numbers)
def test_value_and_milli_round_away_from_zero(number: tuple[int, int, str]) -> None:
    quantity = Quantity.parse(written(number))
    assert quantity.nano == exact(number) * 10**9
    assert quantity.milli() == away_from_zero(exact(number) * 1000) == parse_milli(written(number))
    assert quantity.value() == away_from_zero(exact(number))
    assert float(quantity) == pytest.approx(float(exact(number)), rel=1e-15, abs=0)


@settings(deadline=None)
@given(numbers, numbers)
def test_comparisons_are_those_of_the_exact_numbers(one: tuple[int, int, str], other: tuple[int, int, str]) -> None:
    left, right = Quantity.parse(written(one)), Quantity.parse(written(other))
    assert (left < right) == (exact(one) < exact(other))
    assert (left <= right) == (exact(one) <= exact(other))
    assert (left > right) == (exact(one) > exact(other))
    assert (left >= right) == (exact(one) >= exact(other))
    assert (left == right) == (exact(one) == exact(other))


@settings(deadline=None)
@given(quantities)
def test_canonical_text_parses_to_the_same_quantity(quantity: Quantity) -> None:
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert hash(again) == hash(quantity)
    if again.format is quantity.format:  # "10000" may stand for 1e4 without saying so
        assert str(again) == str(quantity)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10500m", "10500m"),
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("1023", "1023"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("2000e3", "2e6"),
        ("1500E", "1500E"),
        ("1000E", "1e21"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("9Ei", "9223372036854775807"),
        ("-9Ei", "-9223372036854775807"),
        ("000", "0"),
        ("Ki", "0"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    ("number", "milli"), [(15, 15_000), (0.5, 500), (-3, -3_000), (1e21, 10**24), (1e-7, 1), (0.0, 0)]
)
def test_numbers_of_json_and_yaml_are_parsed(number: int | float, milli: int) -> None:
    assert Quantity.parse(number).milli() == milli


@pytest.mark.parametrize(
    "nonsense", [True, False, None, [], b"1", float("nan"), float("inf"), pytest.param(10**5000, id="5,001 digits")]
)
def test_other_types_and_huge_numbers_are_refused(nonsense: object) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(nonsense)  # type: ignore[arg-type]  # a hostile document may have any type


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "quantities must match"),
        (" 1", "quantities must match"),
        ("1\n", "quantities must match"),
        ("１", "quantities must match"),
        ("1_000", "quantities must match"),
        ("1mi", "unable to parse quantity's suffix"),
        ("1e", "unable to parse quantity's suffix"),
        ("1e309", "unable to parse quantity's suffix"),
        pytest.param("1e" + "9" * 5000, "unable to parse quantity's suffix", id="5,000 digits of exponent"),
        pytest.param("9" * 5000, "unable to parse numeric part", id="5,000 digits"),
        (".e-30", "unable to parse numeric part"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(QuantityError, match=message):
        Quantity.parse(text)
    with pytest.raises(QuantityError, match=message):
        parse_milli(text)


def test_bytes_outside_ascii_are_refused() -> None:
    with pytest.raises(QuantityError, match="quantities must match"):
        parse_milli(b"1\xff")


def test_extreme_exponents_are_parsed_at_once() -> None:
    assert Quantity.parse("1e308").value() == 10**308
    assert Quantity.parse("1e-999999999999999999").nano == 1
    assert Quantity.parse("-1e-999999999999999999").nano == -1
    assert float(Quantity.parse("9" * 400)) == float("inf")


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "M", "9" * 399 + "e1", "9" * 398 + "e-7", "9" * 397 + ".9M"])
def test_the_text_of_a_long_number_can_be_parsed(text: str) -> None:
    assert Quantity.parse(str(Quantity.parse(text))) == Quantity.parse(text)


@pytest.mark.parametrize("text", ["9" * 401, "9" * 400 + "e1", "9" * 399 + "e-7", "9" * 399 + ".9M"])
def test_a_number_whose_text_would_be_too_long_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="numeric part"):
        Quantity.parse(text)
    with pytest.raises(QuantityError, match="numeric part"):
        parse_milli(text)


def test_equal_values_of_different_formats_are_one_key() -> None:
    texts = ["1024", "1Ki", "1.024k", "1024000m", "1.024e3"]
    assert len({Quantity.parse(text) for text in texts}) == 1


def test_a_quantity_is_immutable() -> None:
    quantity = Quantity.parse("1")
    with pytest.raises(AttributeError):
        quantity.mantissa = 2  # type: ignore[misc]  # the point of the test


def test_repr_shows_the_canonical_text() -> None:
    assert repr(Quantity.parse("10.5")) == "Quantity('10500m')"


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
