"""The log writer: callers never wait for the reader, and dropped lines are reported."""

import asyncio
import json
import os
import select
import stat
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import structlog

from hpad.daemon import logs, process
from hpad.daemon.logs import Writer


class Pipe(NamedTuple):
    """Both ends, and the number of bytes in it at the start."""

    reader: int
    writer: int
    before: int

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


def fill(writer: int) -> int:
    """Fills the pipe and returns the number of bytes."""
    os.set_blocking(writer, False)
    written = 0
    try:
        while True:
            written += os.write(writer, b"." * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
        return written


@pytest.fixture
def empty() -> Iterator[Pipe]:
    pipe = Pipe(*os.pipe(), 0)
    yield pipe
    pipe.close()


@pytest.fixture
def full() -> Iterator[Pipe]:
    """A pipe on which writes block until it is read."""
    reader, writer = os.pipe()
    pipe = Pipe(reader, writer, fill(writer))
    yield pipe
    pipe.close()


class Reader(threading.Thread):
    """Reads a pipe until `end` closes it, and skips the bytes that were in it at the start."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._read = bytearray()
        self.start()

    def run(self) -> None:
        while piece := os.read(self._pipe.reader, 1 << 16):
            self._read += piece

    def lines(self) -> list[bytes]:
        """Returns the lines read so far, with their line breaks."""
        return bytes(self._read[self._pipe.before :]).splitlines(keepends=True)

    def ends_with(self, text: bytes) -> bool:
        """Returns whether the text stands in the last bytes read, however many there are."""
        return text in self._read[-4096:]

    def end(self) -> list[bytes]:
        """Closes the pipe and returns all lines."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._pipe.writer)
        os.close(null)
        self.join(60)
        return self.lines()


def numbered(count: int, size: int = 100) -> list[bytes]:
    return [b"%d".ljust(size - 1) % number + b"\n" for number in range(count)]


def no_drops(lines: int) -> None:
    raise AssertionError(f"{lines} lines were dropped")


def test_logging_does_not_wait_for_a_reader_that_does_not_read(full: Pipe) -> None:
    lines = numbered(5_000)

    async def log(writer: Writer) -> None:
        for line in lines:
            writer.write(line)
            await asyncio.sleep(0)

    with Writer(full.writer, no_drops, patience=60) as writer:
        looping = threading.Thread(target=lambda: asyncio.run(log(writer)), daemon=True)
        looping.start()
        looping.join(60)
        assert not looping.is_alive()
        reader = Reader(full)
    assert reader.end() == lines


def test_no_line_is_lost_at_the_exit(empty: Pipe) -> None:
    """More than a pipe holds, from several threads; the lines of each keep their order."""
    reader = Reader(empty)
    with Writer(empty.writer, no_drops, patience=60) as writer:

        def write(name: bytes) -> None:
            for number in range(3_000):
                writer.write(name + b"%d\n" % number)

        threads = [threading.Thread(target=write, args=(name,)) for name in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = reader.end()
    for name in (b"a", b"b", b"c"):
        assert [line for line in lines if line.startswith(name)] == [name + b"%d\n" % n for n in range(3_000)]
    assert len(lines) == 9_000


def test_lines_beyond_the_buffer_are_dropped_and_reported_and_urgent_lines_have_more_room(full: Pipe) -> None:
    """Room for ten lines; the last quarter is reserved for urgent ones."""
    ordinary, urgent = numbered(10), [line.replace(b" ", b"!") for line in numbered(10)]
    reported: list[int] = []
    drained = threading.Event()

    def report(lines: int) -> None:
        reported.append(lines)
        writer.write(b"%d were dropped\n" % lines)
        drained.set()

    with Writer(full.writer, report, capacity=1_000, patience=60) as writer:
        for line in ordinary:
            writer.write(line)
        assert writer.dropped == 3
        for line in urgent:
            writer.write(line, urgent=True)
        assert writer.dropped == 3 + 7
        assert reported == []
        reader = Reader(full)
        assert drained.wait(60)
        writer.write(b"later\n")
    assert reader.end() == [*ordinary[:7], *urgent[:3], b"10 were dropped\n", b"later\n"]
    assert reported == [10]


def test_dropped_lines_are_reported_at_the_exit_at_the_latest(full: Pipe) -> None:
    lines = numbered(10)
    with Writer(
        full.writer, lambda lines: writer.write(b"%d were dropped\n" % lines), capacity=1_000, patience=60
    ) as writer:
        for line in lines:
            writer.write(line)
        reader = Reader(full)
    assert sorted(reader.end()) == sorted([*lines[:7], b"3 were dropped\n"])


def test_a_stuck_reader_does_not_block_the_exit(full: Pipe) -> None:
    """Nor do later writes to the descriptor block, such as a traceback."""
    with Writer(full.writer, no_drops, patience=0.05) as writer:
        writer.write(b"dropped\n")
    assert not stat.S_ISFIFO(os.fstat(full.writer).st_mode)
    writer.write(b"dropped as well\n")
    assert writer.dropped == 1


def test_lines_for_a_closed_pipe_are_dropped() -> None:
    reader, end = os.pipe()
    os.close(reader)
    with Writer(end, no_drops, patience=60) as writer:
        for line in numbered(100):
            writer.write(line)
    assert writer.dropped == 100
    os.close(end)


def test_a_non_blocking_descriptor_works(full: Pipe) -> None:
    lines = numbered(3_000)
    os.set_blocking(full.writer, False)
    with Writer(full.writer, no_drops, patience=60) as writer:
        for line in lines:
            writer.write(line)
        reader = Reader(full)
    assert reader.end() == lines


def test_lines_before_and_after_the_context_are_written_directly(empty: Pipe) -> None:
    writer = Writer(empty.writer, no_drops, patience=60)
    writer.write(b"early\n")
    with writer:
        writer.write(b"last\n")
    writer.write(b"later than that\n")
    assert os.read(empty.reader, 4096) == b"early\nlast\nlater than that\n"


def test_lines_of_a_logger_keep_their_order_through_new_settings(empty: Pipe) -> None:
    with Writer(empty.writer, no_drops, patience=60) as writer:
        logs.configure("info", "json", {"JOURNAL_STREAM": "8:1"}, writer=writer)
        log = structlog.get_logger("hpad")
        log.debug("not yet")
        log.info("one")
        logs.configure("debug", "json", {}, writer=writer)
        log.debug("two")
        log.critical("three")
    first, *others = os.read(empty.reader, 4096).splitlines()
    assert first.startswith(b"<6>{")
    assert json.loads(first[3:])["event"] == "one"
    assert [json.loads(line)["event"] for line in others] == ["two", "three"]


def test_the_log_reports_its_dropped_lines(full: Pipe) -> None:
    """At any level, because a dropped line may have been an error."""
    with logs.background_writer(full.writer) as writer:
        logs.configure("error", "json", {}, writer=writer)
        log = structlog.get_logger("hpad")
        for _ in range(1_000):
            if not writer.dropped:
                log.error("x" * 10_000)
        assert writer.dropped == 1
        reader = Reader(full)
        for _ in range(6_000):
            if reader.ends_with(b"log lines dropped"):
                break
            time.sleep(0.01)
    last = json.loads(reader.end()[-1])
    assert (last["event"], last["level"]) == ("log lines dropped: the reader was too slow", "error")
    assert last["lines"] == writer.dropped == 1


def test_a_stall_is_logged_while_it_lasts(empty: Pipe) -> None:
    async def stall() -> None:
        with process.StallDetector(lambda seconds: None, limit=0.1):  # here, or below, the loop hangs
            readable, _, _ = select.select([empty.reader], [], [], 60)  # here, or above, the loop hangs
            assert readable, "no line was written"

    with Writer(empty.writer, no_drops, patience=60) as writer:
        logs.configure("info", "json", {}, writer=writer)
        asyncio.run(stall())
        for thread in threading.enumerate():
            if thread.name == "stall detector":
                thread.join(60)
        line = json.loads(os.read(empty.reader, 1 << 16).splitlines()[0])
    assert line["event"] == "the event loop has stalled"
    assert "the loop hangs" in line["stack"]
