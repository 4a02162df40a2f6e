"""Results that are kept up to a number of bytes."""

from typing import Any

from hpad.api.bounded_cache import bounded_cache

calls: list[str] = []


def memory(function: Any) -> Any:
    return function.cache


@bounded_cache(len, most=100_000)
def upper(text: str) -> str:
    calls.append(text)
    return text.upper()


def test_a_result_is_kept_until_the_bytes_are_used_up() -> None:
    calls.clear()
    assert upper("a") == upper("a") == "A"
    assert calls == ["a"]
    for number in range(1000):
        upper(f"{number}".zfill(5000))
        assert memory(upper).size <= 100_000
    assert upper("a") == "A"
    assert calls.count("a") == 2
    assert 15 < len(memory(upper).results) <= 20


def test_what_takes_a_large_part_alone_is_not_kept() -> None:
    """One text must not replace what all others have in common."""
    calls.clear()
    upper("common")
    for _ in range(3):
        upper("x" * 50_000)
    assert len(calls) == 4
    upper("common")
    assert len(calls) == 4
