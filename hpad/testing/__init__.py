"""PUBLIC: for authors of adapters: check that an adapter keeps the contract, and build what it is asked.

async with testing.context("mine") as context:
    await testing.check_adapter(Mine(Mine.Settings(), context), [testing.external("depth", queue="orders")])
"""

from hpad.testing.build import container_resource, external, object_metric, pods_metric, resource
from hpad.testing.capabilities import context
from hpad.testing.contract import ContractBroken, check_adapter

__all__ = [
    "ContractBroken",
    "check_adapter",
    "container_resource",
    "context",
    "external",
    "object_metric",
    "pods_metric",
    "resource",
]
