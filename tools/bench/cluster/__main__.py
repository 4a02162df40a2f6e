"""Runs the bench: see `options` for what it does, and `python -m tools.bench.cluster --help`."""

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.bench.cluster import chart, controllers, measure, report, storm_report, storms, worlds
from tools.bench.cluster.controllers import HPAD, Controller
from tools.bench.cluster.measure import Figures, Trial
from tools.bench.cluster.options import Options, parsed
from tools.bench.cluster.storm import Storm


def main() -> int:
    options = parsed(sys.argv[1:])
    found: list[Figures] = []
    stormy: list[Storm] = []
    with tempfile.TemporaryDirectory(prefix="hpad-bench-") as root:
        for hpas in options.hpas:
            folder = Path(root, str(hpas))
            folder.mkdir()
            if options.storms:
                figures, endured = _stormy(options, hpas, folder)
                found.append(figures)
                stormy.extend(endured)
            else:
                found.extend(_sized(options, hpas, folder))
    tables = (found and report.table(found), stormy and storm_report.table(stormy))
    print("\n\n".join(filter(None, tables)))
    if options.json is not None:
        figures_of = {"runs": found, "storms": stormy}
        options.json.write_text(report.document(options.flags, figures_of), encoding="utf-8")
    if options.chart is not None:
        options.chart.write_text(chart.drawn(found), encoding="utf-8")
    return 0


def _sized(options: Options, hpas: int, folder: Path) -> Iterator[Figures]:
    """Measures the controllers in turn in one world with so many HPAs."""
    population = options.population(hpas)
    with worlds.started(options.server, folder, population, period=options.period, tls=options.tls) as world:
        for turn, name in itertools.product(range(options.rounds), options.controllers):
            own = folder / f"{name}-{turn}"
            own.mkdir()
            with controllers.started(name, own, world, options.program(hpas)) as controller:
                trial = Trial(options.server, world, controller, population, options.plan)
                found = measure.measured(
                    trial,
                    measure.wait_for_first_round(trial),
                    lambda controller=controller: _toggle_profile(options, controller),
                )
            print(f"{name} at {hpas:,} HPAs: {report.short(found)}", file=sys.stderr)
            yield found


def _stormy(options: Options, hpas: int, folder: Path) -> tuple[Figures, list[Storm]]:
    """Measures hpad in one world before and during storms."""
    population = options.population(hpas)
    with worlds.stub(folder, population, tls=options.tls) as world:
        return storms.measured(
            storms.Site(world, population, options.plan, options.program(hpas), folder, options.outage)
        )


def _toggle_profile(options: Options, controller: Controller) -> None:
    if controller.name == HPAD and (options.profile or options.calls):
        os.kill(controller.pid, signal.SIGUSR2)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:  # a process has ended, and the error has the end of its log
        sys.exit(str(error))
