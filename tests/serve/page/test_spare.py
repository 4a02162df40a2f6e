"""The page of an HPA with spare replicas."""

from datetime import timedelta

from support.engine import Workload, resource
from support.fleet import END, Fleet, Member

from hpad.api.metadata import Key
from tests.serve.page.conftest import Opening

KEY = Key("shop", "web")


def fleet() -> Fleet:
    """Ten replicas have the load of eleven, with one of them spare."""
    workload = Workload(
        resource("cpu", averageUtilization=50), replicas=10, high=20, annotations={"hpad.io/spare": "10%"}
    )
    made = Fleet([Member(KEY, workload, lambda member, now: [member.shares(2750, now, spread=0)])])
    made.turn(KEY, END - timedelta(minutes=1))
    made.turn(KEY, END)
    return made


async def test_the_cascade_tells_what_the_metrics_want_from_what_is_spare(opening: Opening) -> None:
    async with opening(fleet()) as site:
        page = await site.open("#/hpas/shop/web", height=1900)
        await page.until("document.querySelector('[data-key=spare]')")
        assert "2 spare on top (hpad.io/spare: 10%)" in await page.text("[data-key=spare]")
        after = [
            (await page.text(f".cascade [data-key={stage}] .after")).split()[0] for stage in ("now", "metrics", "spare")
        ]
        assert after == ["13", "11", "13"]
        assert "(2 spare)" in await page.text(".cascade [data-key=now]")
        assert "counts as shared by 11 of 13 replicas" in await page.text(".cascade [data-key=metrics]")
