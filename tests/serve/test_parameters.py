"""The places in lists that `continue` stands for, and times in queries."""

from datetime import UTC, datetime, timedelta

import hypothesis
import pytest
from hypothesis import strategies
from multidict import MultiDict

from hpad.api.metadata import AUTOSCALER_KEY, Key
from hpad.api.problem import Invalid
from hpad.serve import listing, parameters
from hpad.serve.listing import Position

TEXT = strategies.text(strategies.characters(), max_size=20)  # with NUL and unpaired surrogates
KIND = strategies.sampled_from(["", AUTOSCALER_KEY])
NAME = TEXT.filter(lambda text: "\0" not in text)


def position(text: str) -> Position:
    found = parameters.read(MultiDict({"continue": text}), parameters.HPAS)["continue"]
    assert isinstance(found, Position)
    return found


@hypothesis.given(strategies.sampled_from(listing.SORTS), strategies.booleans(), TEXT, NAME, NAME, KIND)
def test_a_position_is_read_back(sort: str, descending: bool, value: str, namespace: str, name: str, kind: str) -> None:
    given = Position(f"-{sort}" if descending else sort, value, Key(namespace, name, kind))
    assert position(listing.position_text(given)) == given


@hypothesis.given(strategies.from_regex(parameters.HPAS[-1].schema["pattern"], fullmatch=True))
def test_each_text_of_the_documented_form_is_a_position(text: str) -> None:
    assert position(text).sort == text.partition(".")[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-31T12:00:00Z", 0),
        ("2026-01-31t12:00:00.5z", 0.5),
        ("2026-01-31 12:00:00Z", 0),  # RFC 3339, section 5.6
        ("2026-01-31T13:30:00+01:30", 0),
        ("2026-01-31T11:59:59-00:00", -1),
    ],
)
def test_times_of_rfc_3339(text: str, seconds: float) -> None:
    found = parameters.read(MultiDict({"at": text}), parameters.DECISION)["at"]
    assert found == datetime(2026, 1, 31, 12, tzinfo=UTC) + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31T24:00:00Z", "0001-01-01T00:00:00+01:00", "1769860800"],
)
def test_other_times_are_errors(text: str) -> None:
    with pytest.raises(Invalid, match="is not a time such as 2026-01-31T12:00:00Z"):
        parameters.read(MultiDict({"at": text}), parameters.DECISION)
