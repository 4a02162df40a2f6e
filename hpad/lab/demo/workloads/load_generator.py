"""An open-loop generator of HTTP requests, at a constant rate even if the server is slower.

Usage: python -m hpad.lab.demo.workloads.load_generator PORT REQUESTS_PER_SECOND

It starts at the first line (or the end) of standard input, so that starting up is not part of the load, and runs until
it is terminated. The rate is constant, so the total work does not depend on the number of replicas. While MAX_WAITING
requests wait, new ones are skipped: a machine that was busy for a moment must not show as load later.
"""

import asyncio
import sys

from hpad.clock import Clock, SystemClock

MAX_WAITING = 20
TIMEOUT_SECONDS = 10.0
REQUEST = b"GET / HTTP/1.0\r\nHost: php-apache\r\n\r\n"


async def fetch(port: int) -> None:
    """Sends one request on its own connection; ignores errors, since a replica may end while it answers."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(REQUEST)
                await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return


async def generate(port: int, rate: float, clock: Clock) -> None:
    """Starts a request every 1/rate seconds; a late one does not delay the following ones."""
    waiting: set[asyncio.Task[None]] = set()
    due = clock.monotonic()
    while True:
        if len(waiting) < MAX_WAITING:
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
