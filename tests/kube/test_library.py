"""The configuration loaders of kubernetes_asyncio come without its 850 modules, and leave it importable."""

import subprocess
import sys

import pytest

LOADED = "import sys; from hpad.kube.auth.library import library; found = library()"


def run(program: str) -> list[str]:
    """What the program prints, in a process of its own, because other tests import the package."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_no_model_of_the_api_is_imported():
    assert run(f"{LOADED}; print(*[name for name in sys.modules if name.startswith('kubernetes_asyncio')])") == []
    everything = "import gc; print(any(type(each) is type and each.__name__ == 'V1Pod' for each in gc.get_objects()))"
    assert run(f"{LOADED}; {everything}") == ["False"]


def test_the_loaders_are_those_of_the_package():
    program = (
        f"{LOADED}; import kubernetes_asyncio.config as c; print(c.kube_config.__file__ == found.kube_config.__file__)"
    )
    assert run(program) == ["True"]


@pytest.mark.parametrize("order", ["before", "after"])
def test_the_whole_package_can_be_imported_as_well(order):
    whole = "import kubernetes_asyncio.client as client"
    steps = [whole, LOADED] if order == "before" else [LOADED, whole]
    check = "import kubernetes_asyncio; print(client.CoreV1Api.__module__, kubernetes_asyncio.client is client)"
    assert run("\n".join([*steps, check])) == ["kubernetes_asyncio.client.api.core_v1_api", "True"]
