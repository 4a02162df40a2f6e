"""Runs the bench: see `options` for what it does, and `python -m tools.bench.cluster --help`."""

import sys
import tempfile
from pathlib import Path

from tools.bench.cluster import controllers, measure, report, worlds
from tools.bench.cluster.controllers import Program
from tools.bench.cluster.measure import Figures, Trial
from tools.bench.cluster.options import Options, parsed


def main() -> int:
    options = parsed(sys.argv[1:])
    found: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="hpad-bench-") as folder:
        for hpas in options.hpas:
            found.extend(_sized(options, hpas, Path(folder, str(hpas))))
    print(report.table(found))
    report.write(options, found)
    return 0


def _sized(options: Options, hpas: int, folder: Path) -> list[Figures]:
    """Measures with so many HPAs."""
    folder.mkdir()
    population = options.population(hpas)
    with worlds.started(options.server, folder, population, period=options.period, tls=options.tls) as world:
        program = Program(options.period, options.flags)
        with controllers.hpad(folder, world, program) as controller:
            trial = Trial(options.server, world, controller, population, options.plan)
            return [measure.measured(trial)]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:  # a process has ended, and the error has the end of its log
        sys.exit(str(error))
