"""The page of an HPA that spares busy pods in a scale-down."""

from datetime import timedelta
from typing import Any

from support.engine import Workload, external, series, used
from support.fleet import END, Fleet, Member

from hpad.api.metadata import Key
from tests.serve.page.conftest import Opening

SPARING = {"hpad.io/scale-down-order": "idle-first", "hpad.io/keep-busy": "true"}
KEY = Key("shop", "mailer")


def fleet() -> Fleet:
    """Six pods, of which three are busy when the queue asks for one."""

    def work(member: Member) -> dict[str, Any]:
        return {"work": [used({pod.name: 1000 * (index < 3) for index, pod in enumerate(member.pods)})]}

    workload = Workload(
        external("mails", averageValue="10"),
        replicas=6,
        behavior={"scaleDown": {"stabilizationWindowSeconds": 0}},
        annotations=SPARING,
    )
    made = Fleet([Member(KEY, workload, lambda member, now: [series(60 if now < END else 1)], fields=work)])
    made.turn(KEY, END - timedelta(minutes=1))
    made.turn(KEY, END)
    return made


async def test_the_cascade_says_which_pods_are_kept_and_which_go_first(opening: Opening) -> None:
    async with opening(fleet()) as site:
        page = await site.open("#/hpas/shop/mailer", height=1900)
        await page.until("document.querySelector('[data-key=busy]')")
        text = await page.text("[data-key=busy]")
        assert "3 busy, 0 unknown, 3 idle: no fewer than 3" in text
        assert "first to go: " in text
        after = await page.text("[data-key=busy] .after")
        assert after.split() == ["3", "replicas"]
