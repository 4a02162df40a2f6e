"""Runs the stub server as a process; the bench gives the options (see `child`)."""

import gc
from typing import Any

from tools.bench.cluster import child
from tools.bench.cluster.population import Population
from tools.bench.cluster.stub.api import Api
from tools.bench.cluster.stub.http import Connection
from tools.bench.cluster.stub.listen import listen, tls
from tools.bench.cluster.stub.storms import Storms


async def serve(population: Population, options: dict[str, Any]) -> None:
    """Serves on loopback; `certificate` and `key` are files for TLS, which is off without them."""
    api, connections = Api(population), set[Connection]()
    storms = Storms(api, connections)
    context = tls(options["certificate"], options["key"]) if "certificate" in options else None
    server, url = await listen(api.handle, context, connections)
    gc.freeze()
    async with server:
        await child.obey(url, storms.commands())


if __name__ == "__main__":
    child.main(serve)
