"""Conversion of autoscaling/v1 and v2beta1 HPAs to autoscaling/v2, and from v2 to v1.

v2beta2 has the fields of v2 without `tolerance` and needs no conversion. Source: Kubernetes 1.36,
pkg/apis/autoscaling/v1/conversion.go and v2beta1/conversion.go. A conversion sets no default but the CPU target that
autoscaling/v1 implies.
"""

from hpad.api.conversion.older import from_v1, from_v2beta1, to_v1

__all__ = ["from_v1", "from_v2beta1", "to_v1"]
