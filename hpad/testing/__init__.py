"""PUBLIC: helps authors of adapters to check that an adapter keeps the contract, and to build queries for it.

async with testing.context("mine") as context:
    await testing.check_adapter(Mine(Mine.Settings(), context), [testing.external("depth", queue="orders")])

The check also reports calls that block the event loop, each with its line and what to do instead: time.sleep, blocking
sockets, name resolution, files, TLS files, subprocesses, waiting for threads, and more than a million function calls
without an await. It judges calls by what they are, not by how long they take. It does not see a long computation inside
one C function, nor a loop without function calls.
"""

from hpad.testing.contract import (
    ContractBroken,
    check_adapter,
    container_resource,
    context,
    external,
    object_metric,
    pods_metric,
    resource,
)

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
