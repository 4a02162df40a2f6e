"""An open loop of HTTP requests: so many a second, whether or not the server keeps up.

Usage: python -m hpad.lab.demo.workloads.load_generator PORT REQUESTS_PER_SECOND

It begins when a line (or the end) comes on standard input, so that starting up is not part of the load, and runs until
it is terminated. Open, so that the total work is constant however many replicas share it. Requests that would wait
behind too many others are left out: a machine that was busy for a moment must not show as load later.
"""

import asyncio
import sys

from hpad.clock import Clock, SystemClock

MOST_WAITING = 20
PATIENCE = 10.0
REQUEST = b"GET / HTTP/1.0\r\nHost: php-apache\r\n\r\n"


async def fetch(port: int) -> None:
    """One request on a connection of its own; a replica that goes away in the middle of it is no fault of ours."""
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(REQUEST)
                await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return


async def generate(port: int, rate: float, clock: Clock) -> None:
    """Start a request every 1/rate seconds, by the clock: a late one does not delay those after it."""
    waiting: set[asyncio.Task[None]] = set()
    due = clock.monotonic()
    while True:
        if len(waiting) < MOST_WAITING:
            task = asyncio.create_task(fetch(port))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        due += 1 / rate
        await clock.sleep(due - clock.monotonic())


def main() -> int:
    port, rate = sys.argv[1:]
    sys.stdin.readline()
    asyncio.run(generate(int(port), float(rate), SystemClock()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
