"""The syntax of metric policies: errors with positions, bounds, and any text without another exception."""

import random
import re

import pytest

from hpad.engine import expression
from hpad.engine.addresses import Address
from hpad.engine.expression import Combined, Metric

WORDS = [
    *("max", "min", "avg", "sum", "first", "and", "or", "cpu", "#0", "cpu@app", "q{a=b}", "q{a in (x,y)}"),
    *("(", ")", ",", "+", "*", "-", "#", "{", "}", '"a b"', "'x'", '"', "'", "0.5", "7", "0", "1e5"),
    *(" ", "\n", "\t", "é", "\0"),
]


def test_and_binds_closer_than_or_and_plus_closer_than_and() -> None:
    def metric(name: str, position: int) -> Metric:
        return Metric(Address(name), position)

    expected = Combined(
        "or",
        (metric("a", 1), Combined("and", (metric("b", 6), Combined("sum", (metric("c", 12), metric("d", 16)))))),
    )
    assert expression.parse("a or b and c + d") == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", 'position 1: found the end where a metric, a function (max, min, avg, sum, first) or "(" is allowed'),
        ("max(a,)", "position 7: found ')' where a metric, a function (max, min, avg, sum, first) or \"(\" is allowed"),
        ("max(a b)", 'position 7: found \'b\' where "," "+", "and", "or" or the ")" of position 4 is allowed'),
        ("(a", 'position 3: found the end where "+", "and", "or" or the ")" of position 1 is allowed'),
        ("a b", 'position 3: found \'b\' where "+", "and", "or" or the end is allowed'),
        ("a and", "position 6: found the end where a metric"),
        ("0.5 cpu", "position 5: found 'cpu' where \"*\", since a number is a weight such as 0.5*cpu is allowed"),
        ("0*cpu", "position 1: found '0'; a weight is more than 0 and at most 1000, with at most 9 decimals"),
        ("1001*cpu", "position 1: found '1001'; a weight is more than 0"),
        ("0.0000000001*cpu", "position 1: found '0.0000000001'; a weight is more than 0"),
        ("a - b", "position 3: found '-'; a metric"),
        ("4xx_rate", "position 1: found '4xx_rate': a metric whose name begins with a digit needs quotes"),
        ('max(a, "b)', "position 8: the quote is not closed"),
        ("q{a=}b}", "position 6: found 'b' where"),
        ("#x", "position 1: found '#x'; a metric"),
        ("q{a in b}", "position 1: 'a in b' is not a label selector"),
        ("__import__('os')", "position 11: found '(' where"),
        ("(" * 17 + "a" + ")" * 17, "position 17: more than 16 parentheses within each other"),
        ("a+" * 2048 + "a", "an expression has at most 4096 characters, not 4097"),
    ],
)
def test_an_error_names_the_position_what_was_found_and_what_is_allowed(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(error)}"):
        expression.parse(text)


def test_any_text_is_an_expression_or_a_short_error() -> None:
    dice, errors = random.Random(5), []
    for _ in range(20_000):
        text = dice.choice(["", " "]).join(dice.choices(WORDS, k=dice.randrange(12)))
        try:
            expression.parse(text)
        except ValueError as error:
            errors.append(error)
    assert 10_000 < len(errors) < 19_500
    assert {type(error) for error in errors} == {ValueError}
    assert max(len(str(error)) for error in errors) < 400
