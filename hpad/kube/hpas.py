"""The cache of HPAs, in which a spec lives for as long as it stays what it is, whatever becomes of the status."""

import msgspec

from hpad.api import hpa as hpas
from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec
from hpad.api.metadata import Key
from hpad.kube.cache import Cache

_ENCODER = msgspec.json.Encoder(enc_hook=hpas.enc_hook)


class HpaCache(Cache[HorizontalPodAutoscaler]):
    """All HPAs. Of a version that differs in its status alone the spec is the very object that is held already.

    Most versions come of statuses. Were the spec of each kept in the place of the one before, and worked out anew
    (`model.intent`; together they are half of what an HPA takes), what lives long would be on the move all the time,
    and leave holes between what lives longer.
    """

    def put(self, key: Key, value: HorizontalPodAutoscaler, version: str, *, listed: bool = False) -> None:
        held = self.get(key)
        if held is not None and _same(held.spec, value.spec):
            value = msgspec.structs.replace(value, spec=held.spec)
        super().put(key, value, version, listed=listed)


def _same(one: HorizontalPodAutoscalerSpec, other: HorizontalPodAutoscalerSpec) -> bool:
    """Whether they are written alike, too: equal quantities may not be ("1Ki" and "1024")."""
    return one == other and _ENCODER.encode(one) == _ENCODER.encode(other)
