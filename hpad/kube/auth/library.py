"""The part of kubernetes_asyncio that reads configurations.

Its package imports all of its 850 modules, for every object of the API: a third of a second and 35 MB, which is as much
as hpad needs for 2,000 HPAs. Its configuration needs ten of them.
"""

import functools
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, NamedTuple

_PACKAGE: Final = "kubernetes_asyncio"
_CLIENT: Final = f"{_PACKAGE}.client"
_LOCK: Final = threading.Lock()


class Library(NamedTuple):
    """What hpad uses of kubernetes_asyncio: a class, two modules, and the exception of their functions."""

    Configuration: Any
    kube_config: Any
    incluster_config: Any
    ConfigException: type[Exception]


def library() -> Library:
    """Imports the part, outside the event loop. Leaves the package as if it had never been imported."""
    with _LOCK:
        return _imported()


@functools.cache
def _imported() -> Library:
    with _bare_packages() as client:
        client.Configuration = importlib.import_module(f"{_CLIENT}.configuration").Configuration
        client.ApiClient = type("ApiClient", (), {})  # kube_config names it in functions that hpad does not call
        config = importlib.import_module(f"{_PACKAGE}.config")
        return Library(client.Configuration, config.kube_config, config.incluster_config, config.ConfigException)


@contextmanager
def _bare_packages() -> Iterator[Any]:
    """Lets modules of the package be imported without its own `__init__`. Yields the package of clients."""
    before = _forget()
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.submodule_search_locations is None:
        raise ImportError(f"{_PACKAGE} is not installed")
    locations = list(found.submodule_search_locations)
    package, client = _package(_PACKAGE, locations), _package(_CLIENT, [f"{each}/client" for each in locations])
    sys.modules.update({_PACKAGE: package, _CLIENT: client})
    try:
        yield client
    finally:
        _forget()
        sys.modules.update(before)


def _package(name: str, locations: list[str]) -> ModuleType:
    made = ModuleType(name)
    made.__path__ = locations
    return made


def _forget() -> dict[str, ModuleType]:
    """Removes the package from the imported modules; returns what was there."""
    # Of a copy: another thread may be importing.
    names = [name for name in list(sys.modules) if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]
    return {name: sys.modules.pop(name) for name in names}
