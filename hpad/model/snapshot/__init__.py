"""Scenarios: what reconciles of one HPA saw, as JSON. A bug report is a recording.

The format is that of the conformance vectors. What it can't say is said in fields of our own, all optional, that a
reader of the plain format may skip: `history` of a scenario (what was remembered when it began), `rivals` of a step
(names, in place of `otherHpaSelectors`), `competitors` of a step (other writers of target or status),
`setByOther` (another client has set the replicas since the HPA did), `withheld` (why the count was decided but not
sent) and `answers` of a step (what the metric sources said, one entry per metric, in place of the three metrics lists:
two External metrics of one name, a source that is no Kubernetes API).
"""

from hpad.model.snapshot.encode import encode_scenario, encode_step
from hpad.model.snapshot.scenario import Scenario, SnapshotError, Step, decode_scenario, decode_step

__all__ = [
    "Scenario",
    "SnapshotError",
    "Step",
    "decode_scenario",
    "decode_step",
    "encode_scenario",
    "encode_step",
]
