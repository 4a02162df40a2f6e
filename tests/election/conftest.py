"""Leases are tested against the scripted API server of the tests of hpad.kube."""

from kube.conftest import client, clock, script

__all__ = ["client", "clock", "script"]
