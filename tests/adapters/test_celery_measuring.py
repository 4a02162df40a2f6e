"""What came and what was done over Redis, by hand: workers that restart, come, go, and are silent."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from support.celery_words import worker

from hpad.adapter import AdapterError
from hpad_adapters.celery.measuring import TaskCounters
from hpad_adapters.celery.workers import SILENT_SECONDS, Said, WorkerReport
from hpad_adapters.clearing.goal import ClearingGoal, MeasuredQueue
from hpad_adapters.clearing.workers import Clearing

GOAL = ClearingGoal(60.0)


class Reads:
    """Reads of the queue mail; `at` are seconds since the first worker started."""

    def __init__(self) -> None:
        self.counters = TaskCounters(["mail"])

    def read(self, at: float, waiting: int, *reports: WorkerReport, silent: Sequence[str] = ()) -> MeasuredQueue:
        said = Said(datetime.fromtimestamp(at, UTC), tuple(reports), tuple(silent))
        return self.counters.measured("the queue mail", waiting, said, at)


def came(queue: MeasuredQueue) -> list[int]:
    return [point.sample - queue.published[0].sample for point in queue.published]


def done(queue: MeasuredQueue) -> list[int]:
    return [point.sample for point in queue.done]


def test_tasks_that_came_and_were_done_in_one_interval_count() -> None:
    """The list is as long as before: 20 tasks came, of which the worker has begun 20 and finished 19."""
    reads = Reads()
    reads.read(100, 10, worker("a", 500))
    found = reads.read(105, 10, worker("a", 520, active=1))
    assert (came(found), done(found)) == ([0, 20], [0, 19])
    assert (found.ready, found.held, found.at_work, found.capacity) == (10, 1, 1, 1)
    assert list(found.working.values()) == [0, 1]


def test_what_was_done_before_the_first_read_does_not_count() -> None:
    found = Reads().read(100, 10, worker("a", 500, active=1, reserved=3))
    assert (came(found), done(found), found.held) == ([0], [0], 4)


@pytest.mark.parametrize("fields", [{"started": 103.0}, {"started": None}], ids=["by uptime", "by its counter"])
def test_a_worker_that_starts_again_counts_from_zero(fields: dict[str, float | None]) -> None:
    reads = Reads()
    reads.read(100, 20, worker("a", 500, active=1))
    found = reads.read(105, 17, worker("a", 3, active=1, **fields))
    assert (came(found), done(found)) == ([0, 0], [0, 2])


def test_a_worker_that_starts_again_is_seen_also_if_it_has_begun_more_than_before() -> None:
    reads = Reads()
    reads.read(100, 20, worker("a", 2))
    found = reads.read(120, 15, worker("a", 5, started=105.0))
    assert (came(found), done(found)) == ([0, 0], [0, 5])


def test_a_new_worker_counts_from_its_start_and_one_that_was_not_heard_before_from_now_on() -> None:
    reads = Reads()
    reads.read(100, 20, worker("a", 500))
    found = reads.read(105, 17, worker("a", 500), worker("b", 3, started=101.0))
    assert (came(found), done(found)) == ([0, 0], [0, 3])
    reads.read(110, 17, worker("a", 500), worker("b", 3, started=101.0), worker("c", 9000, started=0.0))
    found = reads.read(115, 16, worker("a", 500), worker("b", 3, started=101.0), worker("c", 9001, started=0.0))
    assert (came(found), done(found)) == ([0] * 4, [0, 3, 3, 4])


def test_a_worker_that_goes_takes_nothing_away() -> None:
    """It hands back what it has fetched. Its task in work is not done, and comes again."""
    reads = Reads()
    reads.read(100, 10, worker("a", 100), worker("b", 100))
    reads.read(105, 0, worker("a", 104, active=1, reserved=1), worker("b", 104, active=1, reserved=1))
    found = reads.read(110, 2, worker("a", 104, active=1, reserved=1))
    assert came(found) == [0, 0, 1]
    assert (done(found), list(found.working.values())) == ([0, 6, 6], [0, 2, 1])


def test_a_silent_worker_stays_as_it_was_and_is_left_out_after_a_minute() -> None:
    reads = Reads()
    reads.read(100, 10, worker("a", 100), worker("b", 100, active=1))
    quiet = reads.read(105, 10, worker("a", 100), silent=["b"])
    assert (quiet.at_work, quiet.capacity) == (1, 2)
    heard = reads.read(110, 6, worker("a", 100), worker("b", 104, active=1))
    assert (came(heard), done(heard)) == ([0, 0, 0], [0, 0, 4])
    late = reads.read(111 + SILENT_SECONDS, 6, worker("a", 100), silent=["b"])
    assert (late.at_work, late.capacity) == (0, 1)


def test_the_counters_do_not_fall_where_lists_and_workers_were_read_at_different_times() -> None:
    """A task is in the list and begun, then in neither, then tasks are purged."""
    reads = Reads()
    reads.read(100, 10, worker("a", 0))
    reads.read(105, 10, worker("a", 1, active=1))
    reads.read(110, 8, worker("a", 1, active=1))
    found = reads.read(115, 0, worker("a", 2, active=1))
    assert came(found) == [0, 1, 1, 1]
    assert done(found) == [0, 0, 0, 1]


def test_reads_in_a_moment_add_no_sample_and_those_after_a_long_time_begin_anew() -> None:
    reads = Reads()
    reads.read(100, 10, worker("a", 100))
    assert len(reads.read(100.5, 9, worker("a", 101, active=1)).done) == 1
    assert len(reads.read(101, 9, worker("a", 101, active=1)).done) == 2
    assert len(reads.read(1000, 9, worker("a", 700, active=1)).done) == 1


def test_the_samples_are_those_of_a_minute_or_thirteen() -> None:
    often, seldom = Reads(), Reads()
    for number in range(200):
        every_second = often.read(number, 0, worker("a", number))
        sometimes = seldom.read(number * 15, 0, worker("a", number))
    assert 60 <= len(every_second.done) <= 62
    assert len(sometimes.done) == 13


def test_a_long_task_holds_one_worker_and_does_not_change_the_time_of_others() -> None:
    """Nine workers do a task each two seconds, and the tenth is at one for ten minutes."""
    reads, clearing = Reads(), Clearing(lambda: at)
    at, needed = 0.0, 0.0
    for step in range(120):
        at = step * 5.0
        rounds = int(at // 2)
        fast = [worker(f"fast-{each}", rounds + 1, active=1) for each in range(9)]
        found = reads.read(at, max(0, 100 - rounds), *fast, worker("slow", 1, active=1))
        needed = clearing.workers(found, ClearingGoal(60.0, service=2.0))
    assert needed == pytest.approx(10, abs=0.5)


def test_after_a_restart_of_hpad_the_first_numbers_are_missing_and_not_zero() -> None:
    reads, clearing = Reads(), Clearing(lambda: at)
    at = 1000.0
    with pytest.raises(AdapterError, match="too few messages of the queue mail"):
        clearing.workers(reads.read(at, 600, *(worker(f"w-{each}", 900, active=1) for each in range(4))), GOAL)
    for at in (1005.0, 1010.0):
        begun = 900 + int(at - 1000) // 2
        queue = reads.read(at, 600, *(worker(f"w-{each}", begun, active=1) for each in range(4)))
        needed = clearing.workers(queue, GOAL)
    assert 8 <= needed <= 20


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (worker("a@1", 0, queues=("mail", "reports")), r"worker a@1 works for 'reports' .* queue in \(mail,reports\)"),
        (worker("a@1", 0, solo=True), "worker a@1 has a solo pool"),
    ],
)
def test_a_worker_whose_tasks_cannot_be_told_apart_is_an_error(report: WorkerReport, text: str) -> None:
    with pytest.raises(AdapterError, match=text) as caught:
        Reads().read(100, 10, report)
    assert caught.value.blame == "spec"


def test_workers_of_other_queues_do_not_count_and_an_answer_that_cannot_be_read_is_an_error() -> None:
    found = Reads().read(100, 10, worker("a", 5, active=1), worker("b", 9, active=1, queues=("reports",)))
    assert (found.held, found.capacity) == (1, 1)
    said = Said(datetime.fromtimestamp(100, UTC), faults=("worker b answers in yaml",))
    with pytest.raises(AdapterError, match="the workers cannot be counted: worker b answers in yaml"):
        TaskCounters(["mail"]).measured("the queue mail", 0, said, 100.0)
