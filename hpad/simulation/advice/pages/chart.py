"""What is drawn of one HPA: its past and its curves, thinned to the width of a chart."""

from hpad.simulation.advice.assessment import Chart, Curve
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.history import REPLICAS
from hpad.simulation.metric_charts import metric_charts
from hpad.simulation.thinning import steps, thinned


def chart_of(past: HpaPast, modelled: Curve, advised: Curve) -> Chart | None:
    """Returns the chart; None if the past has less than two times."""
    load = past.load
    if len(load.times) < 2:
        return None
    span = load.times[0], load.times[-1]
    return Chart(
        begin=span[0],
        end=span[1],
        metrics=metric_charts(past.hpa, load),
        recorded=thinned(steps(load, load.columns.get(REPLICAS, ())), *span),
        modelled=thinned(modelled, *span),
        advised=thinned(advised, *span),
        minimum=thinned(steps(load, past.minimum), *span),
        maximum=thinned(steps(load, past.maximum), *span),
    )
