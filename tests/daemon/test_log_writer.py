"""Lines that wait for their reader: nobody else does, and none is lost but aloud."""

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
from hpad.daemon.log_writer import Writer


class Pipe(NamedTuple):
    """Both ends, and how much was in it from the start."""

    reader: int
    writer: int
    before: int

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


def fill(writer: int) -> int:
    """How many bytes went in until it was full."""
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
    """Whoever writes to it waits until somebody reads."""
    reader, writer = os.pipe()
    pipe = Pipe(reader, writer, fill(writer))
    yield pipe
    pipe.close()


class Reading(threading.Thread):
    """Reads a pipe to its end, which comes once it is `ended`; what lay there from the start is left out."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._read = bytearray()
        self.start()

    def run(self) -> None:
        while piece := os.read(self._pipe.reader, 1 << 16):
            self._read += piece

    def lines(self) -> list[bytes]:
        """Those read up to now, with their ends."""
        return bytes(self._read[self._pipe.before :]).splitlines(keepends=True)

    def ended(self) -> list[bytes]:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._pipe.writer)
        os.close(nowhere)
        self.join(60)
        return self.lines()


def numbered(count: int, size: int = 100) -> list[bytes]:
    return [b"%d".ljust(size - 1) % number + b"\n" for number in range(count)]


def nothing(lines: int) -> None:
    raise AssertionError(f"{lines} lines were dropped")


def test_the_loop_does_not_wait_for_a_reader_that_does_not_read(full: Pipe) -> None:
    lines = numbered(5_000)

    async def log(writer: Writer) -> None:
        for line in lines:
            writer.write(line)
            await asyncio.sleep(0)

    with Writer(full.writer, nothing, patience=60) as writer:
        looping = threading.Thread(target=lambda: asyncio.run(log(writer)), daemon=True)
        looping.start()
        looping.join(60)
        assert not looping.is_alive()
        reading = Reading(full)
    assert reading.ended() == lines


def test_nothing_is_lost_at_the_end(empty: Pipe) -> None:
    """As much as a pipe cannot hold, by several threads: each has its lines in order."""
    reading = Reading(empty)
    with Writer(empty.writer, nothing, patience=60) as writer:

        def write(name: bytes) -> None:
            for number in range(3_000):
                writer.write(name + b"%d\n" % number)

        threads = [threading.Thread(target=write, args=(name,)) for name in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    said = reading.ended()
    for name in (b"a", b"b", b"c"):
        assert [line for line in said if line.startswith(name)] == [name + b"%d\n" % n for n in range(3_000)]
    assert len(said) == 9_000


def test_what_finds_no_room_is_dropped_counted_and_said_and_the_urgent_has_more(full: Pipe) -> None:
    """Room for ten lines, seven and a half of them for any."""
    calm, urgent = numbered(10), [line.replace(b" ", b"!") for line in numbered(10)]
    told: list[int] = []
    drained = threading.Event()

    def tell(lines: int) -> None:
        told.append(lines)
        writer.write(b"%d were dropped\n" % lines)
        drained.set()

    with Writer(full.writer, tell, room=1_000, patience=60) as writer:
        for line in calm:
            writer.write(line)
        assert writer.dropped == 3
        for line in urgent:
            writer.write(line, urgent=True)
        assert writer.dropped == 3 + 7
        assert told == []
        reading = Reading(full)
        assert drained.wait(60)
        writer.write(b"after that\n")
    assert reading.ended() == [*calm[:7], *urgent[:3], b"10 were dropped\n", b"after that\n"]
    assert told == [10]


def test_what_was_dropped_is_said_at_the_end_at_the_latest(full: Pipe) -> None:
    lines = numbered(10)
    with Writer(
        full.writer, lambda lines: writer.write(b"%d were dropped\n" % lines), room=1_000, patience=60
    ) as writer:
        for line in lines:
            writer.write(line)
        reading = Reading(full)
    assert sorted(reading.ended()) == sorted([*lines[:7], b"3 were dropped\n"])


def test_a_reader_that_is_stuck_does_not_hang_the_end(full: Pipe) -> None:
    """Nor does whatever else goes there afterwards, such as a traceback."""
    with Writer(full.writer, nothing, patience=0.05) as writer:
        writer.write(b"nobody will see this\n")
    assert not stat.S_ISFIFO(os.fstat(full.writer).st_mode)
    writer.write(b"nor this\n")
    assert writer.dropped == 1


def test_a_reader_that_has_gone_harms_nobody() -> None:
    reader, end = os.pipe()
    os.close(reader)
    with Writer(end, nothing, patience=60) as writer:
        for line in numbered(100):
            writer.write(line)
    assert writer.dropped == 100
    os.close(end)


def test_a_descriptor_that_others_have_made_non_blocking_will_do(full: Pipe) -> None:
    lines = numbered(3_000)
    os.set_blocking(full.writer, False)
    with Writer(full.writer, nothing, patience=60) as writer:
        for line in lines:
            writer.write(line)
        reading = Reading(full)
    assert reading.ended() == lines


def test_before_and_after_lines_go_straight_on(empty: Pipe) -> None:
    writer = Writer(empty.writer, nothing, patience=60)
    writer.write(b"early\n")
    with writer:
        writer.write(b"last\n")
    writer.write(b"later than that\n")
    assert os.read(empty.reader, 4096) == b"early\nlast\nlater than that\n"


def test_lines_of_a_logger_keep_their_order_through_new_settings(empty: Pipe) -> None:
    with Writer(empty.writer, nothing, patience=60) as writer:
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


def test_the_log_says_itself_what_it_lacks(full: Pipe) -> None:
    """At any level: what is missing may have been an error."""
    with logs.background_writer(full.writer) as writer:
        logs.configure("error", "json", {}, writer=writer)
        log = structlog.get_logger("hpad")
        for _ in range(1_000):
            if not writer.dropped:
                log.error("x" * 10_000)
        assert writer.dropped == 1
        reading = Reading(full)
        for _ in range(6_000):
            if reading.lines() and b"were dropped" in reading.lines()[-1]:
                break
            time.sleep(0.01)
    last = json.loads(reading.ended()[-1])
    assert (last["event"], last["level"]) == ("log lines dropped: the reader was too slow", "error")
    assert last["lines"] == writer.dropped == 1


def test_a_stall_is_said_while_it_lasts(empty: Pipe) -> None:
    async def stall() -> None:
        with process.StallDetector(lambda seconds: None, limit=0.1):  # here, or below, the loop hangs
            said, _, _ = select.select([empty.reader], [], [], 60)  # here, or above, the loop hangs
            assert said, "nothing was said"

    with Writer(empty.writer, nothing, patience=60) as writer:
        logs.configure("info", "json", {}, writer=writer)
        asyncio.run(stall())
        for thread in threading.enumerate():
            if thread.name == "stall detector":
                thread.join(60)
        line = json.loads(os.read(empty.reader, 1 << 16).splitlines()[0])
    assert line["event"] == "the event loop has stalled"
    assert "the loop hangs" in line["stack"]
