"""Flags that earlier versions of kube-controller-manager or of hpad had: when each went, and what to write instead.

Source: kubernetes/kubernetes pull requests 90368 (1.19) and 124948 (1.31); CHANGELOG-1.12.
"""

from collections.abc import Sequence
from typing import Final

from hpad import settings

_PREFIX: Final = "--horizontal-pod-autoscaler-"
_FLAGS: Final = {
    f"{_PREFIX}use-rest-clients": (
        "was removed with Kubernetes 1.19, together with Heapster: leave it out; metrics come from the metrics APIs or "
        "from the sources of the configuration"
    ),
    f"{_PREFIX}upscale-delay": (
        "was removed with Kubernetes 1.31 and has had no effect since 1.12: leave it out; an HPA that should grow more "
        "slowly says so in spec.behavior.scaleUp (stabilizationWindowSeconds, policies)"
    ),
    f"{_PREFIX}downscale-delay": (
        "was removed with Kubernetes 1.31 and has had no effect since 1.12: write "
        f"{_PREFIX}downscale-stabilization, or spec.behavior.scaleDown.stabilizationWindowSeconds in an HPA"
    ),
    f"{_PREFIX}downscale-stabilization-window": (
        f"is what documentation of Kubernetes 1.12 calls it: write {_PREFIX}downscale-stabilization"
    ),
    **{f"--{name.replace('_', '-')}": f"was removed: {instead}" for name, instead in settings.REMOVED.items()},
}


def advice(unknown: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits arguments that no option takes: a sentence for each retired flag, and all arguments that are not theirs.

    The value of a retired flag may stand in an argument of its own; it then belongs to the flag.
    """
    sentences: list[str] = []
    rest: list[str] = []
    after_retired = False
    for argument in unknown:
        name, equals, _ = argument.partition("=")
        if name in _FLAGS:
            sentences.append(f"{name} {_FLAGS[name]}")
        elif not after_retired or argument.startswith("-"):
            rest.append(argument)
        after_retired = name in _FLAGS and not equals
    return list(dict.fromkeys(sentences)), rest
