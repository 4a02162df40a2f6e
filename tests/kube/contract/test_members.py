"""The Leases of shard members on both API servers: published, renewed, lost, released and deleted."""

from typing import Any

import msgspec

from hpad.election import lease, members
from hpad.settings.model import Election

LEASES = "/apis/coordination.k8s.io/v1/{ns}/leases"


def two(api: Any) -> tuple[members.Members, members.Members]:
    lease_settings = Election(enabled=True, shards=True, namespace=api.namespace)
    first, second = (members.Members(api.client, lease_settings, identity=name) for name in ("first", "second"))
    return first, second


async def test_members_find_each_other_and_read_member_sets(api: Any) -> None:
    first, second = two(api)
    assert await first.read() == []
    assert not first.others_found
    await first.publish([first.name])
    assert await first.read() == []
    await second.publish([second.name, first.name])
    assert first.name != second.name
    [seen] = await first.read()
    assert seen == members.Member(second.name, "second", frozenset({first.name, second.name}))
    assert first.others_found
    await second.publish([second.name])
    [seen] = await first.read()
    assert (seen.member_set, seen.renewed) == (frozenset({second.name}), True)
    first.start_over()
    assert [each.renewed for each in await first.read()] == [False]


async def test_the_lease_has_holder_and_duration(api: Any) -> None:
    first, _ = two(api)
    published = await first.publish([first.name, "another"])
    made = await api.ask("GET", f"{LEASES}/{first.name}")
    assert made["metadata"]["labels"] == {members.LABEL: "hpad"}
    assert made["metadata"]["annotations"] == {members.MEMBER_SET: " ".join(sorted(["another", first.name]))}
    assert (made["spec"]["holderIdentity"], made["spec"]["leaseDurationSeconds"]) == ("first", 15)
    assert made["spec"]["renewTime"].startswith(lease.micro_time(published.wall)[:19])


async def test_a_member_that_released_its_lease_does_not_count(api: Any) -> None:
    first, second = two(api)
    await second.publish([second.name])
    assert len(await first.read()) == 1
    await second.release()
    assert await first.read() == []
    assert first.others_found


async def test_a_foreign_write_of_a_lease_is_kept(api: Any) -> None:
    first, second = two(api)
    await first.publish([first.name])
    await api.ask("PATCH", f"{LEASES}/{first.name}", {"metadata": {"labels": {"seen": "yes"}}})
    assert await first.read() == []
    await api.ask("PATCH", f"{LEASES}/{first.name}", {"metadata": {"labels": {"seen": "no"}}})
    await first.publish([first.name])
    assert (await api.ask("GET", f"{LEASES}/{first.name}"))["metadata"]["labels"]["seen"] == "no"
    assert len(await second.read()) == 1


async def test_a_deleted_lease_is_reported_until_its_member_publishes_again(api: Any) -> None:
    first, second = two(api)
    await first.publish([first.name])
    await second.publish([second.name])
    assert len(await second.read()) == 1
    await api.ask("DELETE", f"{LEASES}/{first.name}")
    [missed] = await second.read()
    assert (missed.name, missed.member_set) == (first.name, None)
    await first.publish([first.name, second.name])
    [found] = await second.read()
    assert found.member_set == {first.name, second.name}


async def test_a_member_known_from_member_sets_only_is_marked(api: Any) -> None:
    first, second = two(api)
    await second.publish([second.name, first.name, "hpad-unknown"])
    seen = await first.read()
    assert [(each.name, each.listed_only, each.member_set is None) for each in seen if each.listed_only] == [
        ("hpad-unknown", True, True)
    ]


async def test_only_old_leases_are_deleted(api: Any) -> None:
    slow = Election(enabled=True, shards=True, namespace=api.namespace)
    quick = msgspec.structs.replace(
        slow, lease_duration=slow.lease_duration / 300, retry_period=slow.retry_period / 300
    )
    old, living = (members.Members(api.client, slow, identity=name) for name in ("old", "living"))
    tidier = members.Members(api.client, quick, identity="tidier")
    await old.publish([old.name])
    await old.release()
    await living.publish([living.name])
    await tidier.read()
    await api.client.clock.sleep(1.1)
    await tidier.read()
    await tidier.delete_expired()
    remaining = {each["metadata"]["name"] for each in (await api.ask("GET", LEASES))["items"]}
    assert remaining == {living.name}
