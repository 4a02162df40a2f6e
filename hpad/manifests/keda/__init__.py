"""Converts KEDA's ScaledObjects to HPAs and sources of hpad, and names every field that has no counterpart.

Source of all facts about KEDA: its CRD `keda.sh/v1alpha1`, and the documentation of KEDA 2.21.
"""
