"""A malformed settings file is an error with its name, never a traceback."""

from pathlib import Path

import pytest

from hpad import settings


@pytest.mark.parametrize(
    "content",
    [
        b"workers: \x01",
        b"workers: \xff",
        b"sync_period: 2024-13-45",
        b"workers: " + b"9" * 5000,
        b"sources: " + b"[" * 5000,
        b"dry_run: !!bool x",
        b"dry_run: !!timestamp x",
        b'workers: !!int ""',
        b"workers: !!python/object/apply:os.getcwd []",
        b"sources: *nothing",
        b"? {a: b}\n: c",
        b"- a\n- b",
    ],
)
def test_the_error_of_a_malformed_settings_file_names_it(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_bytes(content)
    with pytest.raises(settings.SettingsError, match=str(file)):
        settings.load(file, {}, {})
