"""The programs of the demo's pods."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import brokers

from hpad.lab.demo.workloads import amqp, php_apache
from hpad.lab.servers import ports

TASKS, HOLDING = "tasks", "held"
PATIENCE = 240
PAUSED_WORKER = """
import pathlib, runpy, sys, time
began, go_on, sleep = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), time.sleep
def wait(seconds):
    began.touch()
    while not go_on.exists():
        sleep(0.05)
time.sleep = wait
runpy.run_module("hpad.lab.demo.workloads.worker", run_name="__main__")
"""
"""A worker that creates one file when its task begins, and ends the task when another file exists."""


def started(module: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"hpad.lab.demo.workloads.{module}", *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stopped(process: subprocess.Popen[str]) -> int:
    process.terminate()
    process.communicate(timeout=PATIENCE)
    return process.returncode


def until_listening(port: int) -> None:
    for _ in range(1200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"nothing listens on {port}")


def listeners(port: int) -> list[str]:
    """Returns the inodes of the sockets that listen on a port, one per process that shares it."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table]
    return [row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"]


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_burn_uses_the_given_cpu_time():
    before = time.process_time()
    php_apache.burn(0.05)
    assert 0.05 <= time.process_time() - before < 0.5


@pytest.mark.cluster
def test_replicas_share_one_port_and_each_request_costs_its_cpu():
    (port,) = ports.free(1)
    replicas = [started("php_apache", PORT=str(port), CPU_MS="10") for _ in range(3)]
    try:
        until_listening(port)
        settled_until = time.monotonic() + PATIENCE
        while len(listeners(port)) < len(replicas) and time.monotonic() < settled_until:
            time.sleep(0.05)
        before = [cpu_seconds(each) for each in replicas]
        for _ in range(60):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as answer:
                assert answer.read() == b"OK!\n"
        used = [cpu_seconds(each) - start for each, start in zip(replicas, before, strict=True)]
    finally:
        for each in replicas:
            stopped(each)
    assert sum(used) >= 0.5
    assert min(used) > 0


@pytest.mark.cluster
def test_the_load_starts_on_demand_at_its_rate():
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.settimeout(0.5)
        load = started("load_generator", str(server.getsockname()[1]), "20")
        try:
            with pytest.raises(TimeoutError):
                server.accept()
            assert load.stdin is not None
            began = time.monotonic()
            load.stdin.write("go\n")
            load.stdin.flush()
            server.settimeout(PATIENCE)
            for _ in range(21):
                server.accept()[0].close()
            assert 0.95 < time.monotonic() - began < PATIENCE
        finally:
            stopped(load)


@pytest.fixture
def broker(shared_broker: brokers.Broker) -> str:
    """The AMQP URL of a real broker with the queues TASKS and HOLDING."""
    return shared_broker.admin_url


@pytest.fixture
def connection(broker: str) -> Iterator[amqp.Connection]:
    made = amqp.Connection(broker)
    yield made
    made.close()


@contextlib.contextmanager
def working(broker: str, queue: str, task_seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Runs a worker, and kills it at the end of the context."""
    worker = started("worker", AMQP_URL=broker, QUEUE=queue, TASK_SECONDS=str(task_seconds))
    try:
        yield worker
    finally:
        worker.kill()
        worker.communicate(timeout=PATIENCE)


def settled(connection: amqp.Connection, queue: str, expected: tuple[int, int]) -> amqp.Count:
    """Returns the counts of a queue once they are as expected, or after a minute."""
    for _ in range(600):
        count = connection.count(queue)
        if count == expected:
            break
        time.sleep(0.1)
    return count


@pytest.mark.rabbitmq
def test_a_worker_takes_one_message_at_a_time_and_finishes_it_on_sigterm(
    broker: str, connection: amqp.Connection, tmp_path: Path
):
    connection.publish(TASKS, [b"first", b"", b"x" * 300_000])
    assert settled(connection, TASKS, (3, 0)) == (3, 0)
    began, go_on = tmp_path / "began", tmp_path / "go on"
    command = (sys.executable, "-c", PAUSED_WORKER, str(began), str(go_on))
    environment = {**os.environ, "AMQP_URL": broker, "QUEUE": TASKS, "TASK_SECONDS": "1"}
    with subprocess.Popen(command, env=environment) as worker:
        try:
            # The broker counts a message as delivered before the worker has received it.
            for _ in range(PATIENCE * 20):
                if began.exists():
                    break
                time.sleep(0.05)
            assert settled(connection, TASKS, (2, 1)) == (2, 1)
            worker.terminate()
            go_on.touch()
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
    assert settled(connection, TASKS, (2, 0)) == (2, 0), "the worker finishes its message and leaves the others"
    with working(broker, TASKS, 0.1) as worker:
        assert settled(connection, TASKS, (0, 1)) == (0, 1)
        assert stopped(worker) == 0


@pytest.mark.rabbitmq
def test_the_message_of_a_killed_worker_returns_to_the_queue(broker: str, connection: amqp.Connection):
    connection.publish(HOLDING, [b"task"])
    with working(broker, HOLDING, 60):
        assert settled(connection, HOLDING, (0, 1)) == (0, 1)
    assert settled(connection, HOLDING, (1, 0)) == (1, 0)
    delivery = next(iter(connection.consume(HOLDING)))
    assert delivery.body == b"task"
    connection.ack(delivery)


@pytest.mark.rabbitmq
def test_an_error_has_the_text_of_the_broker(broker: str, connection: amqp.Connection):
    with pytest.raises(amqp.AmqpError, match="NOT_FOUND - no queue 'nowhere' in vhost '/'"):
        connection.count("nowhere")
    with pytest.raises((amqp.AmqpError, OSError)):
        amqp.Connection(broker.replace("hpad:", "stranger:"))


def test_a_worker_reports_a_missing_broker():
    (port,) = ports.free(1)
    worker = started("worker", AMQP_URL=f"amqp://127.0.0.1:{port}/", QUEUE=TASKS, TASK_SECONDS="1")
    _, err = worker.communicate(timeout=PATIENCE)
    assert worker.returncode == 1
    assert err.startswith("no connection to the broker")
