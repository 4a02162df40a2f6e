"""The texts of the outlook of a workload, and the metrics that its tests share."""

from typing import Any

from support.engine import Workload, external, resource

from hpad.api.sample import AdapterError

DOWN = AdapterError("no answer")
QUEUE = external("queue", averageValue="10")
CPU = resource("cpu", averageUtilization=50)


def texts(web: Workload) -> list[str]:
    return [each.text for each in web.outlook]


def down(**rules: Any) -> dict[str, Any]:
    """Returns a behavior whose scale-down has these rules and no stabilization window."""
    return {"scaleDown": {"stabilizationWindowSeconds": 0, **rules}}
