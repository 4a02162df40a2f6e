"""A consumer for pods of the embedded cluster: keeps each message until the file exists that the message names.

It makes a file of the same name with `.POD` at its end when it takes one. Environment: `AMQP_URL`, `QUEUE`, and `POD`,
the name of the pod, which is part of its consumer tag.
"""

import os
import time
from pathlib import Path

from hpad.lab.demo.workloads import amqp

pod = os.environ["POD"]
connection = amqp.Connection(os.environ["AMQP_URL"])
for delivery in connection.consume(os.environ["QUEUE"], f"worker.{pod}"):
    release = delivery.body.decode()
    Path(f"{release}.{pod}").touch()
    while not Path(release).exists():
        time.sleep(0.05)
    connection.ack(delivery)
