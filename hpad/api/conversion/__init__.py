"""The other versions of an HPA: autoscaling/v1 and v2beta1 in their own form, to autoscaling/v2 and (v1) back.

v2beta2 differs from v2 by its name only (and by what it lacks: `tolerance`), so it needs no conversion. The rules are
those of Kubernetes 1.36: nothing is filled in by a conversion but the CPU goal that autoscaling/v1 implies.
"""

from hpad.api.conversion.v1 import from_v1, to_v1
from hpad.api.conversion.v2beta1 import from_v2beta1

__all__ = ["from_v1", "from_v2beta1", "to_v1"]
