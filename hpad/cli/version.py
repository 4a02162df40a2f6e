"""`hpad version`."""

import argparse

import hpad


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("version", help="print the version", description="Print hpad's version.")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    print(f"hpad {hpad.__version__}")
    return 0
