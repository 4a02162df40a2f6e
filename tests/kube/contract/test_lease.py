"""The Lease of an election on both API servers: one leader, conflicts, release."""

from typing import Any

from hpad.election import lease
from hpad.settings.model import Election

LEASE = "/apis/coordination.k8s.io/v1/{ns}/leases/hpad"


async def test_a_lease_is_acquired_renewed_respected_and_released(api: Any) -> None:
    lease_settings = Election(enabled=True, namespace=api.namespace)
    first, second = (lease.Elector(api.client, lease_settings, identity=name) for name in ("first", "second"))
    assert await first.attempt()
    created = (await api.ask("GET", LEASE))["spec"]
    assert await first.attempt()
    assert await second.attempt() is None
    assert second.holder == "first"
    renewed = (await api.ask("GET", LEASE))["spec"]
    assert renewed["renewTime"] > created["renewTime"]
    assert renewed == {**created, "renewTime": renewed["renewTime"]}
    assert {**created, "acquireTime": "", "renewTime": ""} == {
        "holderIdentity": "first",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": "",
        "renewTime": "",
    }
    await first.release()
    assert (await api.ask("GET", LEASE))["spec"]["holderIdentity"] == ""
    assert await second.attempt()
    assert (await api.ask("GET", LEASE))["spec"]["leaseTransitions"] == 1
    assert await first.attempt() is None


async def test_a_renewal_after_a_foreign_write_conflicts_and_recovers(api: Any) -> None:
    lease_settings = Election(enabled=True, namespace=api.namespace)
    elector = lease.Elector(api.client, lease_settings, identity="first")
    assert await elector.attempt()
    await api.ask("PATCH", LEASE, {"metadata": {"labels": {"seen": "yes"}}})
    assert await elector.attempt()
    assert elector.slow_renewals == 1
    assert (await api.ask("GET", LEASE))["metadata"]["labels"] == {"seen": "yes"}
