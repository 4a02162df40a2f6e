"""Imports the parts of adapters that need an extra of hpad, such as `hpad[kafka]`, when a source uses them."""

import importlib
from typing import Any

from hpad.adapter import AdapterError


def load(module: str, extra: str) -> Any:
    """Returns the module; raises AdapterError with the command that installs the extra where a package is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("hpad", "hpad_adapters"):
            raise
        raise AdapterError(
            f"the Python package \"{error.name}\" is missing: pip install 'hpad[{extra}]'", "spec"
        ) from None
