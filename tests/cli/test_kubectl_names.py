"""Names of HPAs on the command line of `kubectl hpad`."""

from typing import Any

import pytest

from hpad.cli.kubectl import names
from hpad.cli.kubectl.names import KIND, Named
from hpad.cli.output import Failure


def summary(name: str, kind: str, target: str, of: str = KIND) -> dict[str, Any]:
    return {"namespace": "shop", "name": name, "kind": of, "target": {"kind": kind, "name": target}}


WEB = summary("web-hpa", "Deployment", "web")
SET = summary("web", "StatefulSet", "db")
ROLLOUT = summary("canary", "Rollout", "web")
AUTOSCALER = summary("web", "CloneSet", "db", "Autoscaler")


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("web", [SET, AUTOSCALER]),
        ("hpa/web", [SET]),
        ("autoscaler/web", [AUTOSCALER]),
        ("autoscalers.hpad.io/web", [AUTOSCALER]),
        ("asr/web", [AUTOSCALER]),
        ("horizontalpodautoscaler.autoscaling/web", [SET]),
        ("HPA/web", [SET]),
        ("deployment/web", [WEB]),
        ("deploy/web", [WEB]),
        ("deployments.apps/web", [WEB]),
        ("Deployment/web", [WEB]),
        ("sts/db", [SET]),
        ("statefulsets/db", [SET]),
        ("rollout.argoproj.io/web", [ROLLOUT]),
        ("rollouts/web", [ROLLOUT]),
        ("rs/web", []),
        ("we", []),
    ],
)
def test_an_hpa_is_named_by_itself_or_by_its_target(text: str, matching: list[dict[str, Any]]) -> None:
    named = names.parse(text)
    assert [each for each in (WEB, SET, ROLLOUT, AUTOSCALER) if named.matches(each)] == matching


@pytest.mark.parametrize("text", ["", "/", "hpa/", "/web", "a/b/c"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(Failure, match="is not of the form NAME, hpa/NAME, autoscaler/NAME or deployment/NAME"):
        names.parse(text)


class Pages:
    """A Reader of these HPAs, one per page."""

    def __init__(self, *hpas: dict[str, Any]) -> None:
        self.hpas = hpas
        self.paths: list[str] = []

    def get(self, path: str) -> Any:
        self.paths.append(path)
        index = int(path.rpartition("continue=")[2]) if "continue=" in path else 0
        more = {"continue": str(index + 1)} if index + 1 < len(self.hpas) else {}
        return {"items": list(self.hpas[index : index + 1]), "total": len(self.hpas), "counts": {}, **more}


def test_all_pages_are_read() -> None:
    pages = Pages(WEB, SET, ROLLOUT)
    assert names.chosen(pages, "shop", []) == [WEB, SET, ROLLOUT]
    assert pages.paths == [
        "/api/v1/hpas?limit=1000&namespace=shop",
        "/api/v1/hpas?limit=1000&namespace=shop&continue=1",
        "/api/v1/hpas?limit=1000&namespace=shop&continue=2",
    ]


def test_a_name_narrows_the_search() -> None:
    pages = Pages(WEB)
    assert names.chosen(pages, None, [Named("web", "deployment")]) == [WEB]
    assert pages.paths == ["/api/v1/hpas?limit=1000&search=web"]


def test_hpas_are_in_the_order_of_their_names_on_the_command_line() -> None:
    assert names.chosen(Pages(WEB, SET), "shop", [Named("web"), Named("web-hpa")]) == [SET, WEB]


@pytest.mark.parametrize(
    ("namespace", "named", "message"),
    [
        ("shop", Named("none"), "no HPA none in namespace shop"),
        (None, Named("none"), "no HPA none in any namespace"),
        ("shop", Named("none", "deployment"), "no HPA of deployment/none in namespace shop"),
        ("shop", Named("web-hpa", of="Autoscaler"), "no Autoscaler web-hpa in namespace shop"),
    ],
)
def test_a_missing_hpa_is_an_error(namespace: str | None, named: Named, message: str) -> None:
    with pytest.raises(Failure, match=f"^{message}$"):
        names.chosen(Pages(WEB), namespace, [WEB_NAME, named])


WEB_NAME = Named("web-hpa")


def test_one_hpa_is_needed_where_several_match() -> None:
    other = {**SET, "namespace": "staging"}
    assert names.only(Pages(WEB), "shop", WEB_NAME)[1:] == ("shop", "web-hpa", KIND)
    with pytest.raises(Failure, match=r"^several HPAs match web: shop/web, staging/web; .* with its namespace \(-n\)$"):
        names.only(Pages(SET, other), None, Named("web"))
    with pytest.raises(Failure, match=r"^several HPAs match web: shop/web, shop/autoscaler/web; .* by its kind "):
        names.only(Pages(SET, AUTOSCALER), None, Named("web"))
