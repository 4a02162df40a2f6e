"""Imports the parts of adapters that need an extra of hpad, such as `kafka`, when a source uses them."""

import importlib
import importlib.util
import sys
from typing import Any

from hpad.adapter import AdapterError


def load(module: str, extra: str) -> Any:
    """Returns the module; raises AdapterError with the command that installs the extra where a package is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("hpad", "hpad_adapters"):
            raise
        raise _missing(error.name or "", extra) from None


def require(package: str, extra: str) -> None:
    """Raises AdapterError as `load` does if the package is missing; does not import it."""
    if lacks(package, extra):
        raise _missing(package, extra)


def lacks(package: str, extra: str) -> str:
    """Returns the message of `require`, "" if the package is installed; does not import it."""
    if package in sys.modules:  # find_spec raises for modules such as kombu, which replace themselves
        return ""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        found = None
    return "" if found is not None else _missing(package, extra).message


def _missing(package: str, extra: str) -> AdapterError:
    install = f"pip install '.[{extra}]' in a clone of hpad"
    return AdapterError(f'the Python package "{package}" is missing: {install}', "spec")
