"""Starts the programs: `hpad`, which is also `python -m hpad`, `kubectl-hpad`, and its completion.

Ctrl-C ends a program that is still being imported as it does later: with status 130, and without a traceback.
"""

import importlib
import sys


def main() -> int:
    """Runs `hpad`, and returns its exit status."""
    return _run("hpad.cli")


def kubectl() -> int:
    """Runs `kubectl-hpad`, and returns its exit status."""
    return _run("hpad.cli.kubectl")


def kubectl_complete() -> int:
    """Runs `kubectl_complete-hpad`, and returns its exit status."""
    return _run("hpad.cli.kubectl.completion")


def _run(module: str) -> int:
    try:
        status: int = importlib.import_module(module).main()
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
