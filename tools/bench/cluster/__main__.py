"""Runs the bench: see `options` for what it does, and `python -m tools.bench.cluster --help`."""

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.bench.cluster import chart, controllers, measure, report, worlds
from tools.bench.cluster.controllers import HPAD, Controller
from tools.bench.cluster.measure import Figures, Trial
from tools.bench.cluster.options import Options, parsed


def main() -> int:
    options = parsed(sys.argv[1:])
    found: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="hpad-bench-") as folder:
        for hpas in options.hpas:
            found.extend(_sized(options, hpas, Path(folder, str(hpas))))
    print(report.table(found))
    if options.json is not None:
        options.json.write_text(report.document(options.flags, found), encoding="utf-8")
    if options.chart is not None:
        options.chart.write_text(chart.drawn(found), encoding="utf-8")
    return 0


def _sized(options: Options, hpas: int, folder: Path) -> Iterator[Figures]:
    """Measures the controllers in turn in one world with so many HPAs."""
    folder.mkdir()
    population = options.population(hpas)
    with worlds.started(options.server, folder, population, period=options.period, tls=options.tls) as world:
        for turn, name in itertools.product(range(options.rounds), options.controllers):
            own = folder / f"{name}-{turn}"
            own.mkdir()
            with controllers.started(name, own, world, options.program(hpas)) as controller:
                found = measure.measured(
                    Trial(options.server, world, controller, population, options.plan),
                    lambda controller=controller: _toggle_profile(options, controller),
                )
            print(f"{name} at {hpas:,} HPAs: {report.short(found)}", file=sys.stderr)
            yield found


def _toggle_profile(options: Options, controller: Controller) -> None:
    if controller.name == HPAD and (options.profile or options.calls):
        os.kill(controller.pid, signal.SIGUSR2)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:  # a process has ended, and the error has the end of its log
        sys.exit(str(error))
