"""The manifests of the demo: valid Kubernetes objects with this machine's values filled in."""

import sys

import pytest
from support.hpas import decoded

from hpad.api import hpa as v2
from hpad.api import validation
from hpad.lab.demo import cpu, documents, queue

NAMES = (cpu.NAME, queue.NAME)


@pytest.mark.parametrize("name", NAMES)
def test_the_hpa_is_valid_and_scales_the_deployment_beside_it(name: str):
    deployment, hpa = documents.load(name, {})
    assert hpa["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    assert deployment["metadata"]["name"] == hpa["metadata"]["name"] == name
    hpa["metadata"]["namespace"] = "default"
    assert validation.validate(v2.defaulted(decoded(hpa))) == []


@pytest.mark.parametrize("name", NAMES)
def test_commands_run_with_this_interpreter(name: str):
    deployment, _ = documents.load(name, {})
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"][0] == sys.executable
    assert container["command"][1] == "-m"


def test_only_named_variables_are_filled_in():
    deployment, _ = documents.load(cpu.NAME, {"PORT": "1234", "OTHER": "x"})
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "PORT", "value": "1234"}, {"name": "CPU_MS", "value": str(cpu.CPU_MS)}]


def test_the_manifests_contain_the_numbers_of_the_demo():
    deployment, hpa = documents.load(cpu.NAME, {})
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "200m"}
    assert (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) == (1, 10)
    assert hpa["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 50}
    deployment, hpa = documents.load(queue.NAME, {})
    external = hpa["spec"]["metrics"][0]["external"]
    assert deployment["spec"]["replicas"] == hpa["spec"]["minReplicas"] == queue.AT_REST
    assert external["metric"]["name"] == "queue_workers_to_clear"
    task, goal, startup = 4.0, queue.GOAL * 4.0, queue.STARTUP * 4.0
    assert external["metric"]["selector"]["matchLabels"] == {
        "queue": queue.QUEUE, "goal": f"{goal:g}s", "startup": f"{startup:g}s", "service_time": f"{task:g}s",
    }  # fmt: skip
    assert external["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert queue.MESSAGES / (goal - startup) * task == queue.AT_PEAK
    assert hpa["spec"]["maxReplicas"] > 2 * queue.AT_PEAK  # the goal decides, not the maximum
