"""Conversion of autoscaling/v1 and v2beta1 HPAs to autoscaling/v2, and from v2 to v1.

v2beta2 has the fields of v2 without `tolerance` and needs no conversion. A conversion sets no default but the CPU
target that autoscaling/v1 implies.
"""
