"""Names of the series that the past of an HPA is read from: those of kube-state-metrics 2 and of cAdvisor.

Variables of an expression: `<<.HPAs>>` are the matchers of one or several HPAs, `<<.Pods>>` those of the pods of a
target, and `<<.Window>>` is the window of a rate.
"""

from typing import Final

import msgspec


class Series(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An expression in PromQL per series."""

    current: str = "kube_horizontalpodautoscaler_status_current_replicas{<<.HPAs>>}"
    desired: str = "kube_horizontalpodautoscaler_status_desired_replicas{<<.HPAs>>}"
    minimum: str = "kube_horizontalpodautoscaler_spec_min_replicas{<<.HPAs>>}"
    maximum: str = "kube_horizontalpodautoscaler_spec_max_replicas{<<.HPAs>>}"
    cpu_usage: str = 'rate(container_cpu_usage_seconds_total{<<.Pods>>,container!="",container!="POD"}[<<.Window>>])'
    cpu_requests: str = 'kube_pod_container_resource_requests{<<.Pods>>,resource="cpu"}'


DEFAULT: Final = Series()
