"""The text form of the log shows values without Python's notation."""

import subprocess
import sys

import pytest

CODE = """
import structlog
from hpad.daemon import logs
logs.configure("info", "text")
log = structlog.get_logger("x")
"""
SHOWN = {
    "hpa='shop/web'": " hpa=shop/web",
    "error='source \"a\" fails'": " error='source \"a\" fails'",
    'error="it\'s \'so\' and \\"so\\""': " error='it's 'so' and \"so\"'",
    "file='C:\\\\temp x'": " file='C:\\temp x'",
    "dry_run=True": " dry_run=true",
    "changed=['sources', 'routes']": " changed=['sources', 'routes']",
    "of={'queue': None}": " of={queue: null}",
    "scale_to=None": " a\\nb",
    "value=''": " value=''",
}


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The lines that a process logs, one for each of the fields."""
    code = CODE + "".join(f'log.warning("a\\nb", {fields})\n' for fields in SHOWN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


def test_a_call_is_one_line(lines: list[str]) -> None:
    assert len(lines) == len(SHOWN)


@pytest.mark.parametrize("fields", SHOWN)
def test_values_are_shown_without_python_notation(fields: str, lines: list[str]) -> None:
    assert lines[list(SHOWN).index(fields)].rstrip().endswith(SHOWN[fields])
