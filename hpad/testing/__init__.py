"""PUBLIC: helps authors of adapters to check that an adapter keeps the contract, and to build queries for it.

async with testing.context("mine") as context:
    await testing.check_adapter(Mine(Mine.Settings(), context), [testing.external("depth", "queue=orders")])

The check also reports calls that block the event loop, each with its line and what to do instead: time.sleep, blocking
sockets, name resolution, files, TLS files, subprocesses, waiting for threads, and more than a million function calls
without an await. The result depends on which functions are called, not on how long they take. A long computation inside
one C function, or a loop without function calls, is not detected.
"""

from hpad.testing.contract import ContractBroken as ContractBroken
from hpad.testing.contract import by_pod as by_pod
from hpad.testing.contract import check_adapter as check_adapter
from hpad.testing.contract import container_resource as container_resource
from hpad.testing.contract import context as context
from hpad.testing.contract import external as external
from hpad.testing.contract import object_metric as object_metric
from hpad.testing.contract import own_query as own_query
from hpad.testing.contract import pods_metric as pods_metric
from hpad.testing.contract import resource as resource
