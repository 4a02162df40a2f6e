"""The side of a server process: says where it listens, answers commands from its standard input, ends with it."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from tools.bench.cluster.population import Population

Commands = Mapping[str, Callable[[], bytes]]
"""Functions that carry out a command and return its answer, a line of JSON."""


def main(serve: Callable[[Population, dict[str, Any]], Coroutine[Any, Any, None]]) -> None:
    """Runs a server with the population and the options of the command line, which are JSON."""
    from hpad.daemon.process import loop_factory

    options = json.loads(sys.argv[1])
    population = Population(*options.pop("population"))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(population, options))


async def obey(url: str, commands: Commands) -> None:
    """Prints the URL, then the answer to each command, a line of standard input; returns at its end."""
    print(json.dumps(url), flush=True)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        print(commands[line.decode().strip()]().decode(), flush=True)
