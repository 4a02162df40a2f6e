"""The units are valid for systemd, and hpad accepts their commands and variables."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpad import settings
from hpad.daemon import app

UNITS = ("hpad.service", "hpad@.service")
CLUSTER = "hpad-cluster.service"
INSTALLED = ("hpad.service", "hpad@staging.service", CLUSTER)
MOST_EXPOSED = 1.5
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: install Debian's package systemd"
)


def unit(root: Path, name: str) -> dict[str, str]:
    """The [Service] section of a unit; values given several times are joined by newlines."""
    text = (root / "systemd" / name).read_text(encoding="utf-8")
    section = text.partition("[Service]\n")[2].partition("\n[")[0]
    found: dict[str, str] = {}
    for line in section.splitlines():
        if line and not line.startswith("#"):
            field, _, value = line.partition("=")
            found[field] = f"{found[field]}\n{value}" if field in found else value
    return found


@pytest.fixture
def installed(root: Path, tmp_path: Path) -> Path:
    """Returns a folder with the units and an existing executable, because systemd checks for it."""
    for name in (*UNITS, CLUSTER):
        text = (root / "systemd" / name).read_text(encoding="utf-8")
        executable = text.partition("ExecStart=")[2].split()[0]
        target = tmp_path / name.replace("@.", "@staging.")
        target.write_text(text.replace(f"ExecStart={executable}", f"ExecStart={sys.executable}"), encoding="utf-8")
    return tmp_path


@needs_systemd
@pytest.mark.parametrize("name", INSTALLED)
def test_systemd_accepts_the_units(installed: Path, name: str) -> None:
    done = subprocess.run(["systemd-analyze", "verify", str(installed / name)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, [line for line in done.stderr.splitlines() if "hpad" in line]) == (0, "", [])


@needs_systemd
@pytest.mark.parametrize("name", INSTALLED)
def test_exposure_is_low(installed: Path, name: str) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(installed / name)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= MOST_EXPOSED


@pytest.mark.parametrize("name", UNITS)
def test_hpad_accepts_the_command_of_the_unit(
    root: Path, name: str, parsed: Callable[..., settings.Settings], tmp_path: Path
) -> None:
    """With the sample configuration and the folders of systemd."""
    shutil.copy(root / "config/hpad.yaml", tmp_path / "hpad.yaml")
    line = unit(root, name)["ExecStart"].replace("%i", "hpad")
    for folder in ("CONFIGURATION_DIRECTORY", "CREDENTIALS_DIRECTORY"):
        line = line.replace(f"${{{folder}}}", str(tmp_path))
    command, *arguments = shlex.split(line)
    assert command == "/opt/hpad/bin/hpad"
    assert "$" not in line
    assert parsed(arguments).kubeconfig == str(tmp_path / "kubeconfig")


def test_hpad_accepts_the_command_of_the_cluster(root: Path, tmp_path: Path) -> None:
    """With an empty folder of manifests: the command is read, and asks for files."""
    shutil.copy(root / "config/hpad.yaml", tmp_path / "hpad.yaml")
    (tmp_path / "workers").mkdir()
    service = unit(root, CLUSTER)
    line = service["ExecStart"]
    for folder in ("CONFIGURATION_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"):
        line = line.replace(f"${{{folder}}}", str(tmp_path))
    command, *arguments = shlex.split(line)
    assert (command, "$" in line) == ("/opt/hpad/bin/hpad", False)
    done = subprocess.run([sys.executable, "-m", "hpad", *arguments], capture_output=True, text=True)
    assert (done.returncode, "the folder has no file that ends in" in done.stderr) == (1, True), done.stderr
    assert (service["KillMode"], service["OOMPolicy"], service["Delegate"]) == ("mixed", "continue", "cpu memory")


def test_the_variables_of_the_environment_file_are_settings(root: Path) -> None:
    lines = (root / "systemd/hpad.env").read_text(encoding="utf-8").splitlines()
    variables = dict(line.removeprefix("#").split("=", 1) for line in lines if re.match(r"#?HPAD_\w+=", line))
    known = {f"HPAD_{field.upper()}" for field in settings.TABLE}
    broker = {f"HPAD_RABBITMQ_{field}" for field in ("URL", "USERNAME", "PASSWORD_FILE")}
    assert variables
    assert set(variables) <= known | broker
    read = settings.load(None, variables, {})
    assert read.election.enabled
    assert [source.name for source in read.sources] == ["rabbitmq"]


def test_the_template_is_as_hardened_as_the_service(root: Path) -> None:
    service, template = (unit(root, name) for name in UNITS)
    differ = {name for name in service.keys() | template.keys() if service.get(name) != template.get(name)}
    assert differ == {"ExecStart", "EnvironmentFile", "LoadCredential", "StateDirectory", "Environment"}


@pytest.mark.parametrize("name", UNITS)
def test_the_stop_timeout_is_longer_than_hpad_needs(root: Path, name: str) -> None:
    service = unit(root, name)
    assert float(service["TimeoutStopSec"]) > app.DRAIN_SECONDS + app.FLUSH_SECONDS
    assert (service["Type"], service["DynamicUser"]) == ("notify", "yes")


def test_hpad_runs_without_writable_and_executable_memory() -> None:
    """MemoryDenyWriteExecute= by means of prctl(2), PR_SET_MDWE.

    A kernel before 6.3 lacks it; /proc/self/maps still shows memory that is both writable and executable.
    """
    script = f"""
import ctypes, errno
if ctypes.CDLL(None, use_errno=True).prctl({PR_SET_MDWE}, {PR_MDWE_REFUSE_EXEC_GAIN}, 0, 0, 0):
    assert ctypes.get_errno() == errno.EINVAL, "the kernel has it, but it does not work"
import asyncio, importlib.metadata, ssl
import kubernetes_asyncio.config
from hpad.daemon import app, process
from hpad.kube.auth import kubeconfig
for point in importlib.metadata.entry_points(group="hpad.adapters"):
    point.load()
ssl.create_default_context()
asyncio.Runner(loop_factory=process.loop_factory()).run(asyncio.to_thread(print, "well"))
both = [line for line in open("/proc/self/maps") if "wx" in line.split()[1]]
assert not both, both
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
