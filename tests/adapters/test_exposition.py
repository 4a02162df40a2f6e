"""The text format of Prometheus, line by line."""

import math
import time
import tracemalloc

import pytest

from hpad_adapters.exposition import samples


def read(text: str) -> list[tuple[str, dict[str, str], float]]:
    return [(name, each.labels, each.value) for name, each in samples(text.split("\n"), lambda name: name != "other")]


def test_reads_names_labels_and_values() -> None:
    text = '# HELP a x\n\n  \na 1\nother 2\n a{} 3\na:b { q = "x y" , v="/" , } -1.5e3 1700000000000\t\nb{q="}"}2\n'
    assert read(text) == [
        ("a", {}, 1.0),
        ("a", {}, 3.0),
        ("a:b", {"q": "x y", "v": "/"}, -1500.0),
        ("b", {"q": "}"}, 2.0),
    ]


def test_reads_escaped_labels_and_what_is_no_finite_number() -> None:
    [(_, labels, infinite), (_, _, nothing)] = read(r'a{q="\"\\n\n,{}=é"} +Inf' + "\na NaN")
    assert labels == {"q": '"\\n\n,{}=é'}
    assert infinite == math.inf
    assert math.isnan(nothing)


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a b",
        "a 1_000",
        "a{ 1",
        "a} 1",
        "a{q=b} 1",
        'a{q="b} 1',
        'a{q="b" v="c"} 1',
        'a{q="b",q="c"} 1',
        "1a 2",
        "a1 2 3 4",
        "a{,} 1",
        '{"json": 1}',
    ],
)
def test_refuses_what_is_not_a_sample(line: str) -> None:
    with pytest.raises(ValueError, match="is not a sample"):
        read(f"good 1\n{line}\n")


@pytest.mark.parametrize("line", ["a" + " " * 20_000, "a{" + "}" * 20_000 + " 1 x", "a 1" + " " * 20_000 + "x"])
def test_a_line_is_read_in_linear_time(line: str) -> None:
    def cost(line: str) -> float:
        began = time.process_time()
        with pytest.raises(ValueError, match="is not a sample"):
            read(line)
        return time.process_time() - began

    assert cost(line) < 1000 * cost("-" * len(line))  # another try at each character takes some 50,000 times as long


def test_escapes_take_little_memory() -> None:
    label = r"\n" * 200_000
    tracemalloc.start()
    try:
        [(_, labels, _)] = read(f'a{{q="{label}"}} 1')
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert labels == {"q": "\n" * 200_000}
    assert peak < 20 * len(label)
