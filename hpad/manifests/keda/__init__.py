"""KEDA's ScaledObjects as HPAs and sources of hpad: what has a counterpart is carried over, the rest is named.

Facts about KEDA: its CRD `keda.sh/v1alpha1` and the documentation of its scalers (2.21).
"""
