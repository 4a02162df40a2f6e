"""Running kubectl as a child process: its output, errors, limits and end. A shell script stands in for kubectl."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpad.cli.kubectl.children import Kubectl
from hpad.cli.output import Failure


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kubectl]:
    """Puts a shell script named kubectl on the PATH."""

    def write(script: str, *, seconds: float = 60.0, flags: tuple[str, ...] = ()) -> Kubectl:
        file = tmp_path / "kubectl"
        file.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
        return Kubectl(flags, seconds=seconds)

    return write


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def await_end(*pids: int) -> None:
    deadline = time.monotonic() + 60
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, f"{pids} still run"
        time.sleep(0.01)


def test_the_flags_come_before_the_command(kubectl) -> None:
    run = kubectl('echo "$@"', flags=("--context=x", "--as=jane"))
    assert run.output("config", "view") == "--context=x --as=jane config view\n"


def test_an_error_is_that_of_kubectl(kubectl) -> None:
    run = kubectl('echo "error: context \\"x\\" does not exist" >&2; exit 1')
    with pytest.raises(Failure, match=r'^kubectl config: context "x" does not exist$'):
        run.output("config")


def test_the_end_of_a_long_error_is_shown_on_one_line_without_control_characters(kubectl) -> None:
    run = kubectl("seq 10000 >&2; printf 'the \\033[31mreason\\r\\n' >&2; exit 1")
    with pytest.raises(Failure) as failed:
        run.output("config")
    assert str(failed.value).endswith(" 9999 10000 the \\u001b[31mreason")
    assert len(str(failed.value)) < 3000


def test_log_lines_of_kubectl_are_shown_without_their_head(kubectl) -> None:
    head = "E1123 08:02:02.702082    7673 proxy_server.go:147] "
    given_up = f"{head}Error while proxying request: context canceled"
    run = kubectl(f"echo '{head}getting credentials: exec: exit 1' >&2; echo '{given_up}' >&2; exit 1")
    with pytest.raises(Failure, match=r"^kubectl config: getting credentials: exec: exit 1$"):
        run.output("config")


def test_an_error_without_a_text_is_said_to_have_none(kubectl) -> None:
    with pytest.raises(Failure, match=r"^kubectl config fails without an error message$"):
        kubectl("exit 3").output("config")


def test_a_missing_kubectl_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failure, match="kubectl cannot be started: No such file or directory; it must be on the PATH"):
        Kubectl().output("config")


@pytest.mark.parametrize("trap", ["", "trap '' TERM"])
def test_a_command_that_hangs_is_killed_with_its_children(kubectl, tmp_path: Path, trap: str) -> None:
    run = kubectl(
        f"{trap}\necho $$ > pids\n({trap}\nsleep 600) &\necho $! >> pids\necho waiting >&2\nwait", seconds=1.0
    )
    with pytest.raises(Failure, match=r"^kubectl config does not answer within 1s: waiting$"):
        run.output("config")
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    await_end(*pids)


def test_a_server_is_entered_at_its_line_and_ended_with_the_block(kubectl) -> None:
    run = kubectl('echo starting; printf "Serving "; sleep 0.2; echo "on $$"; sleep 600')
    with run.serving("proxy", ready=re.compile("^Serving on ([0-9]+)")) as (_, found):
        pid = int(found[1])
        assert is_alive(pid)
    await_end(pid)


def test_a_server_that_ends_before_it_serves_is_an_error(kubectl) -> None:
    run = kubectl("echo starting; echo 'error: no' >&2; exit 1")
    with pytest.raises(Failure, match=r"^kubectl proxy: no$"), run.serving("proxy", ready=re.compile("Serving")):
        pytest.fail("it serves nothing")


def test_a_server_that_never_serves_is_killed(kubectl) -> None:
    run = kubectl("echo starting; sleep 600", seconds=0.5)
    with (
        pytest.raises(Failure, match=r"^kubectl proxy does not answer within 0\.5s$"),
        run.serving("proxy", ready=re.compile("Serving")),
    ):
        pytest.fail("it serves nothing")


def test_a_child_gets_no_terminal_and_no_input(kubectl) -> None:
    run = kubectl("cat; cut -d ' ' -f 6 /proc/$$/stat; echo $$")
    session, pid = run.output("config").split()
    assert session == pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_plugin_that_is_stopped_ends_its_children(kubectl, tmp_path: Path, number: signal.Signals) -> None:
    kubectl("[ $1 = config ] && exit 0\necho $$ > pid.new; mv pid.new pid; sleep 600")
    command = [sys.executable, "-c", "import sys; from hpad.cli import kubectl; sys.exit(kubectl.main(['status']))"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, b"", b"")
    await_end(int((tmp_path / "pid").read_text()))
