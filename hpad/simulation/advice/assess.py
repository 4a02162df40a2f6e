"""From the past of one HPA to all that is said of it."""

from hpad.simulation.advice import facts, verdict
from hpad.simulation.advice.assessment import AdviceOptions, Assessment, Level
from hpad.simulation.advice.choosing import choice
from hpad.simulation.advice.finding import findings
from hpad.simulation.advice.finding.case import Case
from hpad.simulation.advice.model import rerun, trust
from hpad.simulation.advice.pages.chart import chart_of
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.record import record_of


def assess(past: HpaPast, options: AdviceOptions) -> Assessment:
    """Returns the assessment. Runs for about a second per week and HPA."""
    record = record_of(past, options.tunables)
    known = facts.facts_of(past, record)
    model = None if past.is_paused else rerun.LoadModel.of(past, options)
    now = None if model is None else rerun.rerun(past.hpa, model)
    trusted = trust.judged(past, now)
    found = findings.found(Case(past, known, record, now, trusted))
    chosen = None
    if model is not None and now is not None and trusted.level is not Level.POOR:
        chosen = choice.choose(model, known, found, now, trusted)
    if chosen is not None:
        found = choice.with_fault(found, chosen)
    return Assessment(
        key=past.hpa.key,
        facts=known,
        findings=found,
        trust=trusted,
        advice=None if chosen is None else chosen.advice,
        verdict=verdict.of(known, found, chosen, trusted),
        readings=past.readings,
        notes=() if model is None else model.notes,
        samples=past.samples,
        chart=chart_of(past, () if now is None else now.curve, () if chosen is None else chosen.rerun.curve),
    )
