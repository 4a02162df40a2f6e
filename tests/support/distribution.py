"""Which tests stay together on one worker, and which begin first.

The tests of a file are one unit. Files that share a server, or pasts that take long to make,
are one unit as well, so that it is started once; where tests share nothing, each is a unit. What waits for processes
comes first, so that the run ends with many short units, evenly on all workers.
"""

from collections.abc import Mapping
from typing import Final

TOGETHER: Final[Mapping[str, str]] = {
    "tests/adapters/test_rabbitmq": "RabbitMQ",
    "tests/adapters/test_end_to_end": "RabbitMQ",
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
    "tests/adapters/test_end_to_end",
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


def unit(nodeid: str) -> str:
    """Returns the unit of a test."""
    if nodeid.startswith(APART):
        return nodeid
    file = nodeid.partition("::")[0]
    return next((name for begin, name in TOGETHER.items() if file.startswith(begin)), file)


def rank(nodeid: str) -> int:
    """Returns the place of a test among those of other ranks; within one, the order is random."""
    return next((number for number, begin in enumerate(FIRST) if nodeid.startswith(begin)), len(FIRST))
