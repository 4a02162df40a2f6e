"""The web server of the Kubernetes HPA walkthrough in Python: each request computes square roots and answers OK!

Environment: `PORT` (of 127.0.0.1), `CPU_MS` (CPU time of one request in milliseconds).

All replicas listen on the same port (SO_REUSEPORT); the kernel distributes new connections, as a Service does. The
cost of a request is CPU time of this process, so it is the same on fast and slow machines.
"""

import math
import os
import sys
import time
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer

ROOTS_AT_ONCE = 500


def burn(seconds: float) -> None:
    """Computes until this process has used a number of seconds of CPU time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        for number in range(ROOTS_AT_ONCE):
            math.sqrt(number)


class Server(TCPServer):
    """Handles one request at a time, like one Apache worker; others wait in the backlog."""

    allow_reuse_address = True
    allow_reuse_port = True
    request_queue_size = 64


class Handler(BaseHTTPRequestHandler):
    cost = 0.0

    def do_GET(self) -> None:
        burn(self.cost)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"OK!\n")

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


def main() -> int:
    Handler.cost = float(os.environ["CPU_MS"]) / 1000
    with Server(("127.0.0.1", int(os.environ["PORT"])), Handler) as server:
        server.serve_forever(poll_interval=5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
