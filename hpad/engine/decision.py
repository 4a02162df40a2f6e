"""The decision of a reconcile, and what is said about it: its stages, and one sentence with the reasons."""

from collections.abc import Sequence

import msgspec

from hpad.engine import phrases, stage
from hpad.engine.budget import Budgeted
from hpad.engine.deletion_costs import Spared
from hpad.engine.examine import DISABLED, Clamp, Halt, Verdict
from hpad.engine.propose import Proposal
from hpad.engine.recommend import Recommendation
from hpad.engine.restrain import Restrained
from hpad.engine.spare import WithSpare
from hpad.engine.stage import BOUNDS, INVALID_METRICS, METRICS, SPARE, Stage


class Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The result of one reconcile. `str()` of it is one sentence for logs, tables and tests.

    `scale_to` is the count to write, None where nothing is written. `desired` is the count the target should have; the
    current one where nothing could be decided. `reason` is that of the rescale event. `proposals` has one entry per
    metric of the spec. `recommendation` and `restrained` are set where the metrics decided. `spare` is set where the
    HPA has spare replicas: then `proposals` and `recommendation` are without them. `budgeted` is set for an HPA that
    shares a budget (`hpad.engine.share`), `spared` for a scale-down of one that spares busy pods (`hpad.engine.busy`).
    """

    name: str
    verdict: Verdict
    current: int
    desired: int
    scale_to: int | None = None
    reason: str = ""
    proposals: tuple[Proposal, ...] = ()
    recommendation: Recommendation | None = None
    spare: WithSpare | None = None
    restrained: Restrained | None = None
    budgeted: Budgeted | None = None
    spared: Spared | None = None

    @property
    def limited(self) -> int:
        """The count within all limits, before the budget, and before busy pods are kept."""
        if self.budgeted is not None:
            return self.budgeted.wanted
        return self.desired if self.spared is None else self.spared.wanted

    @property
    def counted(self) -> int:
        """The present count that the metrics decided for: without its spare replicas."""
        return self.current if self.spare is None else self.spare.counted

    @property
    def undecided(self) -> bool:
        """Whether the engine could not decide; False for a target that was set to zero."""
        if isinstance(self.verdict, Halt):
            return self.verdict.kind != DISABLED
        return self.recommendation is not None and self.recommendation.leader is None

    @property
    def stages(self) -> list[Stage]:
        """The stages that were reached, in order; `hpad.engine.holds` has them with the write."""
        if isinstance(self.verdict, Halt):
            return [stage.halted(self.verdict)]
        found = [Stage(BOUNDS, self.limited, str(self.verdict))] if isinstance(self.verdict, Clamp) else self._measured
        if self.budgeted is not None:
            found = [*found, stage.budgeted(self.budgeted, self._asked)]
        return found if self.spared is None else [*found, stage.spared(self.spared)]

    @property
    def _asked(self) -> int | None:
        """What the metrics ask for, with spare replicas; None where they do not decide."""
        if self.spare is not None:
            return self.spare.replicas
        return None if self.recommendation is None else self.recommendation.replicas

    @property
    def _measured(self) -> list[Stage]:
        if self.recommendation is None or self.restrained is None:
            return [Stage(METRICS, None, holds=INVALID_METRICS)]
        first = [Stage(METRICS, self.recommendation.replicas)]
        if self.spare is not None:
            first.append(Stage(SPARE, self.spare.replicas, self.spare.clause))
        return [*first, *stage.restraints(self.restrained, self.limited)]

    @property
    def clauses(self) -> list[str]:
        """What decided the count, then what changed it; [] where nothing was decided."""
        later = [clause for each in self.stages if (clause := each.clause)]
        if self.recommendation is None:
            return later
        return [*phrases.wanted(self.proposals, self.recommendation, self.counted), *later]

    @property
    def held(self) -> str:
        """The clause on what changed the count that the metrics ask for; "" where nothing but spare replicas did."""
        clauses = self.clauses
        only_spare = self.spare is not None and clauses[1:] == [self.spare.clause]
        return "" if only_spare else self._held(clauses)

    def _held(self, clauses: Sequence[str]) -> str:
        if self.recommendation is None or len(clauses) < 2:
            return ""
        but = "," if self.spare is not None and clauses[1] == self.spare.clause else " but"
        return f"{phrases.count_of(self.recommendation)} wanted{but} {'; '.join(clauses[1:])}"

    @property
    def cause(self) -> str | None:
        """The causes of all failures, including metrics replaced by a fallback; None where there are none."""
        if isinstance(self.verdict, Halt):
            return None if self.verdict.kind == DISABLED else self.verdict.text
        failing = [f"{proposal.metric.label}: {proposal.cause}" for proposal in self.proposals if proposal.error]
        return "; ".join(failing) or ("there is no metric" if self.undecided else None)

    @property
    def why(self) -> str:
        """The clause that gives the reasons for `desired`; "" where nothing was decided."""
        clauses, order = self.clauses, "" if self.spared is None else self.spared.order
        if clauses and self.recommendation is not None:
            clauses = [clauses[0], self._held(clauses), *phrases.other_metrics(self.proposals, self.recommendation)]
        return "; ".join(filter(None, [*clauses, order]))

    def __str__(self) -> str:
        if isinstance(self.verdict, Halt):
            return str(self.verdict)
        why = self.why
        if not why:
            return f"cannot decide: {self.recommendation and phrases.undecided(self.proposals, self.recommendation)}"
        if self.scale_to is None:
            return f"keep {self.current}: {why}"
        return f"scale {self.name} from {self.current} to {self.desired}: {why}"
