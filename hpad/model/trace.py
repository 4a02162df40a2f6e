"""How a decision came about, stage by stage: evidence for people, the store and the status page."""

import msgspec


class Step(msgspec.Struct, frozen=True, gc=False):
    """One stage (examine, measure, propose, recommend, restrain, decide) and its verdict as a sentence."""

    stage: str
    verdict: str

    def __str__(self) -> str:
        return f"{self.stage}: {self.verdict}"


Trace = tuple[Step, ...]
