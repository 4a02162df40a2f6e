"""Long runs of one External metric against what Kubernetes did: windows, policies and rates."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conformance.scenarios import MANY, differences

Vectors = Callable[[str], Iterator[dict[str, Any]]]


def test_every_reconcile_comes_out_as_recorded(
    vectors: Vectors, record_property: Callable[[str, object], None]
) -> None:
    total, wrong = differences(vectors("timeline"))
    record_property("conformance", ("timeline", total - len(wrong), total))
    if wrong:
        pytest.fail("\n".join([f"{len(wrong)} of {total} reconciles differ", *wrong[:MANY]]))
