"""The collector of Python searches seldom, and keeps off what start-up has made."""

import gc

import pytest

from hpad.cli import program
from hpad.daemon import process


@pytest.fixture(autouse=True)
def restored():
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def test_ten_thousand_objects_cause_no_search():
    program.collect_seldom()
    gc.collect()
    before = [each["collections"] for each in gc.get_stats()]
    kept = [[number] for number in range(10_000)]
    assert [each["collections"] for each in gc.get_stats()] == before
    assert len(kept) == 10_000


def test_what_exists_at_the_end_of_start_up_is_not_searched_but_still_freed():
    kept = [[number] for number in range(1_000)]
    process.keep_all()
    frozen = gc.get_freeze_count()
    assert frozen >= 1_000
    assert not any(each is kept for each in gc.get_objects())
    del kept
    assert gc.get_freeze_count() <= frozen - 1_000
