"""Texts from outside are shown as text, with control characters escaped; and what the page says about hpad itself."""

import json

from aiohttp import web
from aiohttp.test_utils import TestServer
from support import fleet_cast, http_server
from support.fleet import Fleet

from hpad.api.metadata import Key
from hpad.api.text import harmless
from hpad.election.leader import KnownReplica
from hpad.serve.api_types import Status
from tests.serve.page.conftest import Opening, Site

CONTROLS = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x2028, 0x202E, 0x2066, 0x2069)))


async def test_names_and_errors_from_outside_are_shown_as_text(site: Site) -> None:
    for hash_ in ("#/?search=hostile", "#/hpas/test/hostile"):
        page = await site.open(hash_)
        await page.until("document.querySelector('.sentence')")
        assert harmless(fleet_cast.HOSTILE) in await page.text(".sentence")
        assert await page.value("document.images.length") == 0
        titles = await page.value("[...document.querySelectorAll('[title]')].map((each) => each.title).join()")
        assert "\u202e" not in await page.value("document.documentElement.outerHTML") + titles


async def test_control_characters_are_escaped_as_elsewhere(opening: Opening) -> None:
    async with opening(Fleet(), problems=lambda: [f"a{CONTROLS}b 東京"]) as site:
        page = await site.open()
        await page.until("document.querySelector('.notice')")
        shown = await page.value("document.querySelector('.notice > div').textContent")
        assert shown == harmless(f"a{CONTROLS}b 東京")


async def test_without_hpas_the_page_says_how_to_make_one(opening: Opening) -> None:
    async with opening(Fleet()) as site:
        page = await site.open()
        await page.until("document.body.innerText.includes('No HPA yet')")
        assert "kubectl autoscale" in await page.text(".empty")


async def test_a_dry_run_problems_and_activity_are_shown(opening: Opening) -> None:
    mode = Status(doing="Deciding for 3 HPAs", facts=("leader", "HPAs of the API server"), dry_run=True)
    problems = [f"problem {number}" for number in range(5)]
    async with opening(fleet_cast.rich(0.1), mode=mode, problems=lambda: problems, unready=lambda: ["waiting"]) as site:
        page = await site.open()
        await page.until("document.querySelector('.notice')")
        notes = await page.text(".notices")
        for text in ("hpad decides, but writes nothing to the cluster", "waiting", "problem 1", "3 more problems"):
            assert text in notes
        assert await page.text(".facts .dry") == "Dry run"
        assert await page.text("#doing") == "Deciding for 3 HPAs"
        assert "HPAs of the API server" in await page.text(".foot")
        version = await site.get("version")
        assert f"hpad {version['version']}" in await page.text(".foot")


def standby() -> tuple[KnownReplica, ...]:
    return KnownReplica("hpad-0", "standby"), KnownReplica("hpad-1", "leader")


async def test_an_hpa_of_another_replica_says_so(opening: Opening) -> None:
    async with opening(Fleet(idle=[Key("shop", "web")]), replicas=standby) as site:
        page = await site.open("#/hpas/shop/web")
        await page.until("document.body.innerText.includes('another one owns it (hpad-1)')")
        assert await page.text(".facts .role") == "standby, 1 of 2"
        assert "hpad-1: leader of 1 HPA" in await page.text(".foot")


async def test_a_standby_names_the_leader(opening: Opening) -> None:
    async with opening(Fleet(idle=[Key("shop", "web")]), replicas=standby) as site:
        page = await site.open()
        await page.until("document.body.innerText.includes('This replica stands by')")
        assert "hpad-1 leads" in await page.text(".notices")


async def test_a_refusal_says_what_is_needed(site: Site) -> None:
    page = await site.open()
    answer = json.dumps({"error": "no"})
    await page.value(
        f"window.fetch = async () => new Response({json.dumps(answer)}, {{status: 401}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    await page.until("document.querySelector('.notices').innerText.includes('a token or a certificate')")


async def test_the_page_works_below_a_path_of_a_proxy(site: Site) -> None:
    """`kubectl proxy` serves it below /api/v1/namespaces/NAMESPACE/services/SERVICE/proxy/."""

    async def passed_on(request: web.Request) -> web.StreamResponse:
        path = request.path_qs.removeprefix("/some/proxy")
        async with http_server.session() as session, session.get(site.server.url + path) as answer:
            headers = {name: answer.headers[name] for name in ("Content-Type", "Content-Security-Policy")}
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response

    application = web.Application()
    application.router.add_get("/some/proxy/{path:.*}", passed_on)
    async with TestServer(application) as proxy:
        page = await site.open("#/hpas/shop/checkout", url=str(proxy.make_url("/some/proxy")))
        await page.until("document.querySelector('.live').dataset.live === 'live'")
        await page.until("document.querySelector('.cascade')")
        assert await page.value("document.querySelector('.foot a').pathname") == "/some/proxy/api/v1/openapi.json"
        await page.close()
