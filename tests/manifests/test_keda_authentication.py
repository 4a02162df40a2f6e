"""Parameters that a TriggerAuthentication, a ConfigMap or the target's environment holds."""

from typing import Any

import pytest
from support.scaled_objects import PROMETHEUS, RABBITMQ, REDIS, scaled, trigger

from hpad.api.problem import Invalid
from hpad.manifests.keda import authentication, scaledobject
from hpad.manifests.keda.conversion import Converted


def auth(kind: str = "TriggerAuthentication", name: str = "broker", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name} | ({} if kind.startswith("Cluster") else {"namespace": "shop"})
    return {"apiVersion": "keda.sh/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def held(*parameters: str) -> list[dict[str, str]]:
    return [{"parameter": each, "name": "rabbit", "key": f"the-{each}"} for each in parameters]


def deployment(container: dict[str, Any], name: str = "worker") -> dict[str, Any]:
    pod = {"spec": {"containers": [container]}}
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": pod}}


def converted(used: dict[str, Any], *others: dict[str, Any], **reference: str) -> Converted:
    used = {**used, "authenticationRef": {"name": "broker", **reference}} if reference or others[:1] else used
    return scaledobject.convert(scaled(used), None, authentication.collect(others))


def settings(found: Converted) -> dict[str, Any]:
    [source] = found.sources
    return dict(source.settings)


def lost(found: Converted) -> list[str]:
    return [str(note) for note in found.notes if note.lost]


def at_reference(found: Converted) -> str:
    return "\n".join(note.text for note in found.notes if note.field == "spec.triggers[0].authenticationRef")


def test_a_secret_becomes_a_file_and_the_note_says_what_to_mount_there() -> None:
    found = converted(RABBITMQ, auth(secretTargetRef=held("username", "password", "ca", "cert", "key", "keyPassword")))
    assert settings(found) == {
        "url": "http://rabbit.shop.svc:15672",
        "username": "REPLACE-ME",
        "password_file": "/etc/hpad/secrets/shop/rabbit/the-password",
        "ca": "/etc/hpad/secrets/shop/rabbit/the-ca",
        "cert": "/etc/hpad/secrets/shop/rabbit/the-cert",
        "key": "/etc/hpad/secrets/shop/rabbit/the-key",
        "key_password": {"file": "/etc/hpad/secrets/shop/rabbit/the-keyPassword"},
    }
    file = "/etc/hpad/secrets/shop/rabbit/the-password"
    assert f'from {file} (password_file): mount key "the-password" of Secret shop/rabbit there' in at_reference(found)
    [user] = lost(found)
    assert 'key "the-username" of Secret shop/rabbit holds it: write the username into the source' in user


def test_an_address_in_a_secret_is_named_with_the_example_that_stands_for_it() -> None:
    no_host = trigger("rabbitmq", {"queueName": "orders", "protocol": "amqp"})
    found = converted(no_host, auth(secretTargetRef=held("host", "vhostName", "tls")))
    assert settings(found)["url"] == "amqp://REPLACE-ME:5672"
    of = 'of TriggerAuthentication "broker" is not carried over'
    for line, each in zip(lost(found), ("host", "vhostName"), strict=True):
        assert f'"{each}" {of}: key "the-{each}" of Secret shop/rabbit holds it' in line
    assert '"tls" is left out: the scheme of the URL decides' in at_reference(found)


def test_the_secrets_of_a_cluster_trigger_authentication_are_in_kedas_namespace() -> None:
    cluster = auth("ClusterTriggerAuthentication", secretTargetRef=held("password"))
    found = converted(REDIS, cluster, kind="ClusterTriggerAuthentication")
    assert settings(found)["password_file"] == "/etc/hpad/secrets/keda/rabbit/the-password"
    assert "Secret keda/rabbit" in at_reference(found)
    assert lost(found) == []


@pytest.mark.parametrize(
    ("name", "key", "file"),
    [
        ("../../../../etc", "shadow", "/etc/hpad/secrets/shop/etc/shadow"),
        ("/etc", "../shadow", "/etc/hpad/secrets/shop/etc/shadow"),
        ("x/../../../var/run", "./token", "/etc/hpad/secrets/shop/x/var/run/token"),
    ],
)
def test_no_name_of_a_secret_leads_out_of_the_folder(name: str, key: str, file: str) -> None:
    entry = {"parameter": "password", "name": name, "key": key}
    assert settings(converted(REDIS, auth(secretTargetRef=[entry])))["password_file"] == file


def test_a_parameter_without_a_setting_is_named() -> None:
    found = converted(REDIS, auth(secretTargetRef=held("password", "sentinelPassword")))
    [line] = lost(found)
    assert '"sentinelPassword" of TriggerAuthentication "broker"' in line
    assert "the source has no setting for it" in line


def test_a_config_map_gives_the_text_itself() -> None:
    maps = [{"parameter": each, "name": "broker", "key": each} for each in ("host", "vhostName")]
    data = {"host": "http://rabbit:15672/", "vhostName": "prod\n"}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "broker", "namespace": "shop"},
        "data": data,
    }
    found = converted(trigger("rabbitmq", {"queueName": "orders"}), auth(configMapTargetRef=maps), config)
    [source] = found.sources
    assert (source.settings["url"], source.query["vhost"]) == ("http://rabbit:15672", "prod")
    assert lost(found) == []


ENV = {
    "name": "app",
    "env": [
        {"name": "BROKER", "value": "http://worker:hunter2@rabbit:15672/prod"},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "rabbit", "key": "pass"}}},
    ],
}


def test_variables_of_the_target_are_read_from_its_deployment() -> None:
    used = trigger("rabbitmq", {"queueName": "orders", "hostFromEnv": "BROKER", "passwordFromEnv": "PASSWORD"})
    found = scaledobject.convert(scaled(used), None, authentication.collect([deployment(ENV)]))
    assert settings(found) == {
        "url": "http://rabbit:15672",
        "username": "worker",
        "password_file": "/etc/hpad/secrets/shop/rabbit/pass",
    }
    assert lost(found) == []
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("container", "known"),
    [
        (ENV, True),
        ({**ENV, "name": "sidecar"}, False),
        ({"name": "app", "env": []}, False),
        ({"name": "app", "envFrom": [{"configMapRef": {"name": "other"}}, {"secretRef": {"name": "one"}}]}, False),
    ],
)
def test_a_variable_that_is_not_known_is_a_loss(container: dict[str, Any], known: bool) -> None:
    target = {"name": "worker", "envSourceContainerName": "app"}
    used = scaled(trigger("rabbitmq", {"queueName": "orders", "hostFromEnv": "BROKER"}), scaleTargetRef=target)
    found = scaledobject.convert(used, None, authentication.collect([deployment(container)]))
    assert (settings(found)["url"] == "http://rabbit:15672") == known
    fields = [note.field for note in found.notes if note.lost]
    assert fields == ([] if known else ["spec.triggers[0].metadata.hostFromEnv"])


SECRET = {"valueFrom": {"secretKeyRef": {"name": "rabbit", "key": "x"}}}
PARTS = [{"name": "HOST", "value": "rabbit"}, {"name": "SECRET", **SECRET}, {"name": "PRICE", "value": "$$(HOST)"}]


@pytest.mark.parametrize(
    ("text", "expected", "told"),
    [
        ("http://worker:$(SECRET)@$(HOST):15672/prod", {"url": "http://rabbit:15672", "username": "worker"}, ""),
        (
            "http://$(SECRET):pw@$(HOST)/",
            {"url": "http://rabbit", "username": "REPLACE-ME"},
            'REPLACE-ME stands for what key "x" of Secret shop/rabbit holds',
        ),
        ("amqp://$(PRICE)/prod", {"url": "amqp://$(HOST):5672", "source": "amqp"}, ""),
        ("http://$(LATER)/", {"url": "http://REPLACE-ME"}, 'REPLACE-ME stands for what the variable "LATER"'),
        ("$(SECRET)prod", {"url": "http://REPLACE-ME:15672"}, 'with key "x" of Secret shop/rabbit, holds it'),
        ("$(SECRET)", {"url": "http://REPLACE-ME:15672"}, 'over: key "x" of Secret shop/rabbit holds it'),
        ("http://rabbit:$(SECRET)/", {"url": "http://REPLACE-ME:15672"}, "holds it: write the host into the source"),
    ],
)
def test_a_variable_may_be_made_of_those_before_it(text: str, expected: dict[str, str], told: str) -> None:
    env = [{"name": "BROKER", "value": "of no use"}, *PARTS, {"name": "BROKER", "value": text}]
    env.append({"name": "LATER", "value": "late"})
    used = scaled(trigger("rabbitmq", {"queueName": "orders", "hostFromEnv": "BROKER"}))
    found = scaledobject.convert(used, None, authentication.collect([deployment({"name": "app", "env": env})]))
    assert settings(found).items() >= expected.items()
    assert lost(found) == [] if not told else told in "\n".join(lost(found))


def test_variables_that_grow_without_end_are_not_known() -> None:
    env = [{"name": "V0", "value": "http://rabbit/"}]
    env += [{"name": f"V{number}", "value": f"$(V{number - 1})" * 2} for number in range(1, 1500)]
    used = scaled(trigger("rabbitmq", {"queueName": "orders", "hostFromEnv": "V1499"}))
    found = scaledobject.convert(used, None, authentication.collect([deployment({"name": "app", "env": env})]))
    assert settings(found)["url"] == "http://REPLACE-ME:15672"


@pytest.mark.parametrize("text", ["amqp://me:s3cret@rabbit/", "s3cret@1", "host=a password=s3cret", "$(s3cret)"])
def test_what_is_no_name_of_a_variable_is_refused_and_not_shown(text: str) -> None:
    said = "must be the name of a variable of the target's container"
    with pytest.raises(Invalid, match=rf'hostFromEnv: Invalid value: "…": {said}; a value itself is host$') as caught:
        converted(trigger("rabbitmq", {"queueName": "orders", "hostFromEnv": text}))
    assert "s3cret" not in str(caught.value)
    known = authentication.collect([auth(env=[{"parameter": "password", "name": text}])])
    [error] = known.errors.values()
    assert str(error).endswith(f'spec.env[0].name: Invalid value: "…": {said}')


@pytest.mark.parametrize("name", ["RABBIT_HOST", "RabbitMq:Host", "spring.rabbitmq.addresses[0]", "9"])
def test_names_of_variables_are_those_of_kubernetes(name: str) -> None:
    container = {"name": "app", "env": [{"name": name, "value": "http://rabbit:15672/"}]}
    used = trigger("rabbitmq", {"queueName": "orders", "hostFromEnv": name})
    found = scaledobject.convert(scaled(used), None, authentication.collect([deployment(container)]))
    assert settings(found)["url"] == "http://rabbit:15672"


def test_env_of_an_authentication_and_env_from_of_a_container() -> None:
    whole = {"name": "app", "envFrom": [{"secretRef": {"name": "redis"}, "prefix": "R_"}]}
    env = auth(env=[{"parameter": "password", "name": "R_PASS"}])
    assert settings(converted(REDIS, env, deployment(whole)))["password_file"] == "/etc/hpad/secrets/shop/redis/PASS"
    alone = converted(REDIS, env)
    assert "password_file" not in settings(alone)
    assert any(
        'the variable "R_PASS" of the target\'s container, of Deployment shop/worker, which is not' in line
        for line in lost(alone)
    )


@pytest.mark.parametrize(
    ("spec", "file"),
    [
        (
            {
                "hashiCorpVault": {
                    "address": "http://v",
                    "secrets": [{"parameter": "password", "key": "p", "path": "kv/r"}],
                }
            },
            "shop/hashiCorpVault/kv/r/p",
        ),
        ({"gcpSecretManager": {"secrets": [{"parameter": "password", "id": "r"}]}}, "shop/gcpSecretManager/r"),
        ({"awsSecretManager": {"secrets": [{"parameter": "password", "name": "r"}]}}, "shop/awsSecretManager/r"),
        (
            {"awsSecretManager": {"secrets": [{"parameter": "password", "name": "r", "secretKey": "p"}]}},
            "shop/awsSecretManager/r/p",
        ),
        ({"boundServiceAccountToken": [{"parameter": "password", "serviceAccountName": "r"}]}, "shop/token/r"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_a_secret_outside_of_kubernetes_needs_a_file_that_somebody_writes(spec: dict[str, Any], file: str) -> None:
    known = authentication.collect([auth(**spec)])
    used = scaled({**REDIS, "authenticationRef": {"name": "broker"}})
    found = scaledobject.convert(used, None, known)
    assert settings(found)["password_file"] == f"/etc/hpad/secrets/{file}"
    assert f"write it into /etc/hpad/secrets/{file}" in at_reference(found)
    [each] = known.authentications.values()
    assert [note.lost for note in each.notes] == [True]


def test_parameters_in_a_file_of_keda_are_not_known() -> None:
    """KEDA 2.20: filePath of a ClusterTriggerAuthentication is the path of one JSON file with all parameters."""
    file = auth("ClusterTriggerAuthentication", filePath="creds.json")
    found = converted(trigger("rabbitmq", {"queueName": "orders"}), file, kind="ClusterTriggerAuthentication")
    assert settings(found)["url"] == "http://REPLACE-ME:15672"
    assert lost(found)
    [each] = authentication.collect([file]).authentications.values()
    assert '"creds.json" is a file of the KEDA operator' in each.notes[0].text


def test_the_grant_of_oauth2_becomes_the_setting_of_the_source() -> None:
    secret = {"valueFrom": {"secretKeyRef": {"name": "idp", "key": "secret"}}}
    grant = {"type": "clientCredentials", "tokenUrl": "https://idp/token", "clientId": "hpad", "clientSecret": secret}
    found = converted(RABBITMQ, auth(oauth2={**grant, "scopes": ["read"], "tokenUrlParams": {"audience": "rabbitmq"}}))
    assert settings(found)["oauth2"] == {
        "token_url": "https://idp/token",
        "client_id": "hpad",
        "client_secret_file": "/etc/hpad/secrets/shop/idp/secret",
        "scopes": ["read"],
        "params": {"audience": "rabbitmq"},
    }
    assert lost(found) == []
    untaken = converted(REDIS, auth(oauth2=grant | {"clientSecret": secret}))
    assert any('"oauth2" of TriggerAuthentication "broker"' in line for line in lost(untaken))


@pytest.mark.parametrize(
    ("modes", "parameters", "expected"),
    [
        ("bearer", ("bearerToken",), {"bearer_token_file": "bearerToken"}),
        ("tls", ("ca", "cert", "key"), {"ca": "ca", "cert": "cert", "key": "key"}),
        ("basic", ("username", "password"), {"password_file": "password"}),
        ("", ("ca",), {"ca": "ca"}),
    ],
)
def test_the_modes_of_a_prometheus(modes: str, parameters: tuple[str, ...], expected: dict[str, str]) -> None:
    used = trigger("prometheus", PROMETHEUS["metadata"] | ({"authModes": modes} if modes else {}))
    found = settings(converted(used, auth(secretTargetRef=held(*parameters))))
    files = {name: file for name, file in found.items() if name not in ("url", "username")}
    assert files == {name: f"/etc/hpad/secrets/shop/rabbit/the-{each}" for name, each in expected.items()}


def test_a_custom_header_of_a_prometheus() -> None:
    used = trigger("prometheus", PROMETHEUS["metadata"] | {"authModes": "custom"})
    found = converted(used, auth(secretTargetRef=held("customAuthHeader", "customAuthValue")))
    assert settings(found)["headers"] == {"REPLACE-ME": {"file": "/etc/hpad/secrets/shop/rabbit/the-customAuthValue"}}
    [line] = lost(found)
    assert "customAuthHeader" in line


def test_an_authentication_that_keda_would_refuse_is_an_error_of_its_users() -> None:
    known = authentication.collect([auth(secretTargetRef=[{"parameter": "password", "name": "rabbit"}])])
    [error] = known.errors.values()
    assert error.problems[0].path == "spec.secretTargetRef[0].key"
    with pytest.raises(type(error), match=r"spec\.secretTargetRef"):
        scaledobject.convert(scaled({**REDIS, "authenticationRef": {"name": "broker"}}), None, known)


SENTINEL = {"sentinelPasswordFromEnv": "PASSWORD"}


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("rabbitmq", {"queueName": "q", "host": "http://rabbit:15672/", "passwordFromEnv": "PASSWORD"}),
        ("redis-sentinel", {"addresses": "r:1", "sentinelMaster": "m", "listName": "l", "listLength": "5"} | SENTINEL),
        ("aws-sqs-queue", {"queueURL": "q", "awsRegion": "eu-west-1", "awsSecretAccessKeyFromEnv": "PASSWORD"}),
    ],
)
def test_a_secret_in_an_unknown_variable_has_one_note_with_one_way_to_give_it(
    kind: str, metadata: dict[str, str]
) -> None:
    found = scaledobject.convert(scaled(trigger(kind, metadata)))
    [note] = [note for note in found.notes if note.field.endswith(("asswordFromEnv", "KeyFromEnv"))]
    assert note.lost
    variable = note.text.rpartition(" ")[2]
    assert 'the variable "PASSWORD" of' in note.text
    assert f"holds it: give it to hpad as {variable}" in note.text
    assert f"_env': '{variable}'" in str(settings(found))
