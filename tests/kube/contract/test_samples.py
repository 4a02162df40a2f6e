"""The samples are taken by an API server as a whole, strictly read."""

from pathlib import Path

import yaml
from kube.contract.conftest import Api
from kube.contract.test_contract import HPAS

FOLDER = Path(__file__).resolve().parents[3] / "config" / "hpas"


async def test_every_sample_is_taken_as_it_stands(api: Api) -> None:
    samples = [each for path in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text("utf-8"))]
    for sample in samples:
        made = await api.ask("POST", HPAS, sample, fieldValidation="Strict")
        assert made["spec"]["maxReplicas"] == sample["spec"]["maxReplicas"]
    found = (await api.ask("GET", HPAS))["items"]
    assert sorted(each["metadata"]["name"] for each in found) == sorted(each["metadata"]["name"] for each in samples)
