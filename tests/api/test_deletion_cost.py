"""The deletion cost of a pod: what is a user's, what is hpad's, and which texts are costs."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from hpad.api.pod import (
    DeletionCost,
    Pod,
    cost_annotations,
    cost_of_annotations,
    cost_value,
    is_valid_cost,
    set_by_hpad,
)

AT = datetime(2026, 11, 30, 8, tzinfo=UTC)
TEXTS = [
    ("0", 0),
    ("-0", 0),
    ("10", 10),
    ("-5", -5),
    ("-05", -5),
    ("-" + "0" * 5000 + "5", -5),
    ("2147483647", 2**31 - 1),
    ("-2147483648", -(2**31)),
]


@pytest.mark.parametrize(("text", "number"), TEXTS)
def test_costs(text: str, number: int) -> None:
    assert (is_valid_cost(text), cost_value(text)) == (True, number)


@pytest.mark.parametrize(
    "text",
    [None, "", "-", "+3", "08", "00", " 1", "1 ", "1\n", "1.0", "1_0", "0x1", "\u0663", "2147483648", "9" * 5000],
)
def test_other_texts_count_as_zero(text: str | None) -> None:
    assert (is_valid_cost(text), cost_value(text)) == (False, 0)


@pytest.mark.parametrize("users", [None, DeletionCost("7"), DeletionCost("-1", "-1 2026-11-30T07:00:00Z", "7")])
def test_hpads_cost_keeps_that_of_the_user(users: DeletionCost | None) -> None:
    before = None if users is None else "7"
    marked = set_by_hpad(users, -3, AT.astimezone(timezone(timedelta(hours=1))))
    assert marked == DeletionCost("-3", "-3 2026-11-30T08:00:00Z", before)
    assert (marked.users, marked.restored) == (before, before)
    assert Pod(name="web", deletion_cost=marked).users_cost == cost_value(before)


@pytest.mark.parametrize("edited", ["-4", "5", None])
def test_a_cost_that_differs_from_what_hpad_wrote_is_the_users(edited: str | None) -> None:
    found = DeletionCost(edited, "-3 2026-11-30T08:00:00Z", "7")
    assert (found.users, found.restored) == (edited, edited)
    assert Pod(name="web", deletion_cost=found).is_marked


def test_an_invalid_cost_is_not_restored() -> None:
    """The API server would refuse it; it counts as 0, as none does."""
    assert DeletionCost("-3", "-3 2026-11-30T08:00:00Z", "low").restored is None


@pytest.mark.parametrize(
    "cost",
    [DeletionCost("7"), DeletionCost("-3", "-3 x", "7"), DeletionCost(None, "-3 x"), DeletionCost(None, None, "7")],
)
def test_the_annotations_are_read_as_written(cost: DeletionCost) -> None:
    present = {name: text for name, text in cost_annotations(cost).items() if text is not None}
    assert cost_of_annotations(present | {"other": "1"}) == cost


def test_a_pod_without_these_annotations_has_none() -> None:
    assert cost_of_annotations({"other": "1"}) is None
    assert not Pod(name="web").is_marked
    assert not Pod(name="web", deletion_cost=DeletionCost("7")).is_marked
