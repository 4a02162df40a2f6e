"""A decision as text: what an operator reads."""

from datetime import timedelta

from support.engine import Workload, pod, series, used
from support.rendered import CPU, QUEUE, expected, part, text

from hpad.api.sample import AdapterError


def test_php_apache_by_its_cpu() -> None:
    """Scenario 28: 305 % of one pod at 50 % are 6.1 pods. In 15 s the policies add four pods to one, or double it."""
    web = Workload(CPU, replicas=1)
    web.reconcile(used([610]))
    assert text(web) == expected("""
        HPA:       default/web
        Target:    Deployment/web, 1 replica, min 1, max 10
        Time:      2026-01-01 12:00:00Z, 8s ago
        Decision:  scale web from 1 to 5: cpu above target (305% / 50%); 7 wanted but growth is limited to 5 for now \
(scaleUp policies: 4 pods in 15 s or 100% in 15 s)

        Metrics:
          cpu wants 7
            Metric:    Resource cpu, from metrics-server
            Sample:    0s old
            Usage:     305% of the requests, 610m per pod; target 50%
            Ratio:     6.1; outside the tolerance (0.9 to 1.1)
            Wants:     7, rounded up from 6.1 x 1 pod = 6.1
            Pods:      1 ready
              POD    GROUP  VALUE  REQUEST  USED
              web-0  ready  610m   200m     305%

        Replicas:
          now             1
          metrics want    7  by cpu
          after windows   7  (scale-up 0s, scale-down 5m)
          after policies  5  scaleUp allows at most 5, the largest change of 2 policies
                             4 pods in 15s: from 1 to 5
                             100% in 15s: from 1 to 2
          after min, max  5  (min 1, max 10)
          written         5

        Events:    SuccessfulRescale (Normal)

        Next:
          - 5 -> 7 once the scaleUp policies allow it at 12:00:15Z (in 7s), if cpu still wants 7
          - shrinks once cpu is at most 40% for 5m, with all 5 pods ready
    """)


def test_a_queue_at_its_target() -> None:
    """Scenario 28."""
    web = Workload(QUEUE, replicas=5)
    web.now += timedelta(seconds=12)
    web.reconcile(series(30, 23))
    assert text(web) == expected("""
        HPA:       default/web
        Target:    Deployment/web, 5 replicas, min 1, max 10
        Time:      2026-01-01 12:00:12Z, 8s ago
        Decision:  keep 5: external metric queue(queue=orders) within the tolerance of its target (10.6 / 10 per \
replica, 53 in total)

        Metrics:
          queue wants 5
            Metric:    external metric queue(queue=orders), from rabbitmq
            Sample:    30 + 23 = 53, 12s old
            Usage:     10.6 per replica (53 over 5 replicas); target 10 per replica
            Ratio:     1.06; within the tolerance (0.9 to 1.1)
            Wants:     5, unchanged

        Replicas:
          now             5
          metrics want    5  by queue
          after windows   5  (scale-up 0s, scale-down 5m)
          after policies  5
          after min, max  5  (min 1, max 10)
          written         -  nothing to write

        Next:
          - grows once queue is above 55 (11 per replica; now 53)
          - shrinks once queue is at most 40 (8 per replica; now 53) for 5m
    """)


def test_a_missing_request_marks_the_pod() -> None:
    """Scenario 28."""
    web = Workload(CPU, replicas=2)
    web.pods = [pod("web-0"), pod("web-1", cpu=None)]
    web.reconcile(used([100, 100]))
    assert text(web) == expected("""
        HPA:       default/web
        Target:    Deployment/web, 2 replicas, min 1, max 10
        Time:      2026-01-01 12:00:00Z, 8s ago
        Decision:  cannot decide: cpu fails: missing request for cpu in container app of Pod web-1

        Metrics:
          cpu fails
            Metric:    Resource cpu, from metrics-server
            Error:     missing request for cpu in container app of Pod web-1
            Sample:    0s old
            Pods:      2 ready
              POD    GROUP  VALUE  REQUEST  USED  WHY
              web-1  ready  100m   -        -     it has no cpu request
              web-0  ready  100m   200m     50%

        Replicas:
          now             2
          metrics want    -  cpu fails: the count stays
          written         -  nothing to write

        Events:    FailedGetResourceMetric (Warning), FailedComputeMetricsReplicas (Warning)

        Next:
          - stays at 2 until cpu can be measured
    """)


def test_two_metrics_of_which_one_fails() -> None:
    """Scenario 28."""
    web = Workload(QUEUE, CPU, replicas=5)
    web.reconcile(series(30), AdapterError("the metrics API answered 503"))
    assert text(web) == expected("""
        HPA:       default/web
        Target:    Deployment/web, 5 replicas, min 1, max 10
        Time:      2026-01-01 12:00:00Z, 8s ago
        Decision:  cannot decide: cpu fails: the metrics API answered 503; external metric queue(queue=orders) wants 3 \
(6 / 10 per replica, 30 in total), but nothing shrinks meanwhile

        Metrics:
          queue wants 3
            Metric:    external metric queue(queue=orders), from rabbitmq
            Sample:    30, 0s old
            Usage:     6 per replica (30 over 5 replicas); target 10 per replica
            Ratio:     0.6; outside the tolerance (0.9 to 1.1)
            Wants:     3 = 30 / 10
          cpu fails
            Metric:    Resource cpu, from metrics-server
            Error:     the metrics API answered 503

        Replicas:
          now             5
          metrics want    -  cpu fails, and the other metrics want fewer: the count stays
          written         -  nothing to write

        Events:    FailedGetResourceMetric (Warning), FailedComputeMetricsReplicas (Warning)

        Next:
          - 5 -> 3 from 12:05:00Z on (in 4m52s), once cpu can be read and wants at most 3
          - grows once queue is above 55 (11 per replica; now 30)
    """)


def test_a_held_scale_down() -> None:
    """Scenario 28."""
    web = Workload(QUEUE, replicas=5)
    web.reconcile(series(50))
    web.reconcile(series(20), after=60)
    assert part(web, "Replicas:") == [
        "now             5",
        "metrics want    2  by queue",
        "after windows   5  5 was recommended at 12:00:00Z; the scale-down window (5m) holds it until 12:05:00Z",
        "after policies  5",
        "after min, max  5  (min 1, max 10)",
        "written         -  nothing to write",
    ]
    assert part(web, "Next:")[0] == (
        "- 5 -> 2 once the scale-down window frees at 12:05:00Z (in 3m52s), if queue still wants 2"
    )


def test_a_policy_limit_names_the_used_budget() -> None:
    """Scenario 28: Of 8 pods two may go in a minute. One went 15 s ago, so one more may go now."""
    rules = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}
    web = Workload(QUEUE, replicas=8, behavior={"scaleDown": rules})
    web.reconcile(series(70))
    web.reconcile(series(10), after=15)
    assert part(web, "Replicas:") == [
        "now             7",
        "metrics want    1  by queue",
        "after windows   1  (scale-up 0s, scale-down 0s)",
        "after policies  6  scaleDown allows no fewer than 6",
        "2 pods in 1m: from 8 to 6; 1 removed, it counts until 12:01:00Z",
        "after min, max  6  (min 1, max 10)",
        "written         6",
    ]
    # At 12:01:00 the first pod of the two counts no more, the second does until 12:01:15.
    assert part(web, "Next:")[0] == (
        "- 6 -> 5 once the scaleDown policies allow it at 12:01:00Z (in 37s), if queue still wants 1"
    )


def test_a_fallback() -> None:
    """Scenario 28."""
    web = Workload(QUEUE, replicas=5, annotations={"hpad.io/fallback": "replicas:7 after 60s"})
    down = AdapterError("the broker is down")
    web.reconcile(down)
    assert part(web, "queue fails")[2] == "Fallback:  replicas:7 after 1m0s: from 12:01:00Z on"
    web.reconcile(down, after=60)
    assert text(web) == expected("""
        HPA:       default/web
        Target:    Deployment/web, 5 replicas, min 1, max 10
        Time:      2026-01-01 12:01:00Z, 8s ago
        Decision:  scale web from 5 to 7: external metric queue(queue=orders) falls back to 7 replicas, failing for \
1m0s (the broker is down)

        Metrics:
          queue fails, and counts as 7 replicas
            Metric:    external metric queue(queue=orders), from rabbitmq
            Error:     the broker is down
            Fallback:  replicas:7 after 1m0s: falls back to 7 replicas, failing for 1m0s

        Replicas:
          now             5
          metrics want    7  by queue
          after windows   7  (scale-up 0s, scale-down 5m)
          after policies  7  scaleUp allows at most 10, the largest change of 2 policies
                             4 pods in 15s: from 5 to 9
                             100% in 15s: from 5 to 10
          after min, max  7  (min 1, max 10)
          written         7

        Events:    FailedGetExternalMetric (Warning), SuccessfulRescale (Normal)

        Next:
          - queue counts as 7 replicas until it can be read
          - cannot shrink while the fallback of queue is in force
    """)
