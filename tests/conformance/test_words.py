"""What hpad says about recorded decisions: sentence, explanation, trace, status and events, as digests.

The digests stand in `words.json`. Where a text was changed on purpose, compare all texts of both commits, and renew the
digests in the commit of the change, which says which text changed and why:

    python -m tests.conformance.words --write after
    python -m tests.conformance.words --write before    (in a work tree of the commit before)
    diff -r before after
    python -m tests.conformance.words --renew
"""

import json
import re

import pytest
from conformance import words

KNOWN: dict[str, str] = json.loads(words.DIGESTS.read_text())


@pytest.mark.parametrize("part", words.parts())
def test_the_words_for_recorded_decisions_are_as_before(part: str) -> None:
    if words.digest(part) != KNOWN[part]:
        pytest.fail(
            f"hpad says something else about the recorded decisions of {part}. To see what: python -m"
            f" tests.conformance.words --write DIR {part}, here and in a work tree of the commit before, and diff both"
        )


def test_the_digests_are_of_many_steps() -> None:
    counts = [int(re.sub(r".* of (\d+) steps", r"\1", each)) for each in KNOWN.values()]
    assert sum(counts) >= 20_000
    assert KNOWN.keys() == set(words.parts())
