"""An API server accepts all sample manifests with strict validation."""

from pathlib import Path

import yaml
from kube.contract.conftest import Api
from kube.contract.test_contract import HPAS

FOLDER = Path(__file__).resolve().parents[3] / "config" / "hpas"


async def test_every_sample_manifest_is_accepted(api: Api) -> None:
    samples = [each for path in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text("utf-8"))]
    assert len(samples) > 3
    for sample in samples:
        made = await api.ask("POST", HPAS, sample, fieldValidation="Strict")
        assert made["spec"]["maxReplicas"] == sample["spec"]["maxReplicas"]
    found = (await api.ask("GET", HPAS))["items"]
    assert sorted(each["metadata"]["name"] for each in found) == sorted(each["metadata"]["name"] for each in samples)
