"""Which tests stay together on one worker, and which begin first.

The tests of a file are one unit, as with `--dist=loadfile`. Files that share a server, or pasts that take long to make,
are one unit as well, so that it is started once; where tests share nothing, each is a unit. What waits for processes
comes first, so that the run ends with many short units, evenly on all workers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final[Mapping[str, str]] = {
    "tests/adapters/test_rabbitmq": "RabbitMQ",
    "tests/e2e/test_queue_workers": "queues",
    "tests/e2e/test_simulated_queue": "queues",
    "tests/e2e/test_time_to_clear": "queues",
    "tests/serve/page/": "Chromium",
    "tests/simulation/advice/test_assess": "advice",
    "tests/simulation/advice/test_choice": "advice",
    "tests/simulation/advice/test_findings": "advice",
    "tests/simulation/advice/test_verdict": "advice",
}
"""Units of the files whose names begin so."""
APART: Final = (
    "tests/conformance/",
    "tests/controller/test_early",
    "tests/fuzz/",
    "tests/lab/demo/test_demo.py",
    "tests/lab/demo/test_show.py",
    "tests/test_bench",
)
"""Each test of these files is a unit."""
FIRST: Final = (
    "tests/lab/demo/",
    "tests/adapters/test_rabbitmq",
    "tests/serve/page/",
    "tests/e2e/test_queue_workers",
    "tests/e2e/",
    "tests/security/",
    "tests/adapters/",
    "tests/packaging/",
    "tests/kube/contract/",
    "tests/test_bench",
    "tests/conformance/",
    "tests/records/",
    "tests/lab/",
)


class Units(LoadScopeScheduling):
    """Hands out units in the order in which they were collected, and not the largest first."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def collection(tests: Path, worker: int, workers: int) -> Sequence[Path]:
    """Returns the folders and files of tests, beginning at the share of one worker.

    Each worker collects all tests. In a fresh clone, workers that begin at the same file would all compile each file.
    """
    found = sorted(path for path in tests.iterdir() if path.name.startswith("test_") or any(path.rglob("test_*.py")))
    begin = worker * len(found) // workers
    return [*found[begin:], *found[:begin]]


def unit(nodeid: str) -> str:
    """Returns the unit of a test."""
    if nodeid.startswith(APART):
        return nodeid
    file = nodeid.partition("::")[0]
    return next((name for begin, name in TOGETHER.items() if file.startswith(begin)), file)


def rank(nodeid: str) -> int:
    """Returns the place of a test among those of other ranks; within one, the order is random."""
    return next((number for number, begin in enumerate(FIRST) if nodeid.startswith(begin)), len(FIRST))
