"""The text form of the log shows values without Python's notation."""

import subprocess
import sys

import pytest

CODE = """
import structlog
from hpad.daemon import logs
logs.configure("info", "text")
structlog.get_logger("x").warning("a\\nb", {fields})
"""


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ("hpa='shop/web'", " hpa=shop/web"),
        ("error='source \"a\" fails'", " error='source \"a\" fails'"),
        ('error="it\'s \'so\' and \\"so\\""', " error='it's 'so' and \"so\"'"),
        ("file='C:\\\\temp x'", " file='C:\\temp x'"),
        ("dry_run=True", " dry_run=true"),
        ("changed=['sources', 'routes']", " changed=['sources', 'routes']"),
        ("of={'queue': None}", " of={queue: null}"),
        ("scale_to=None", " a\\nb"),
        ("value=''", " value=''"),
    ],
)
def test_values_are_shown_without_python_notation(fields: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(fields=fields)], capture_output=True, text=True, check=True
    )
    assert done.stderr.rstrip().endswith(shown)
    assert len(done.stderr.splitlines()) == 1
