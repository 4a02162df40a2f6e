"""PUBLIC: for authors of adapters: check that an adapter keeps the contract, and build what it is asked.

async with testing.context("mine") as context:
    await testing.check_adapter(Mine(Mine.Settings(), context), [testing.external("depth", queue="orders")])

The check also names calls that block the event loop, by what they are and not by how long they take, each with its line
and what to do instead (`hpad.testing.blocking`): time.sleep, sockets that block and name resolution, files, files of
TLS, subprocesses, waiting for threads, and more than a million calls of functions without an await. It does not see
what a single function of C computes, nor a loop that calls nothing.
"""

from hpad.testing.build import container_resource, context, external, object_metric, pods_metric, resource
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
