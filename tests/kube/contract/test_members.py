"""The Leases of members on both API servers: found by their label, renewed, missed, given up and deleted."""

from typing import Any

import msgspec

from hpad.election import lease, members
from hpad.settings.model import Election

LEASES = "/apis/coordination.k8s.io/v1/{ns}/leases"


def two(api: Any) -> tuple[members.Members, members.Members]:
    told = Election(enabled=True, shards=True, namespace=api.namespace)
    first, second = (members.Members(api.client, told, identity=name) for name in ("first", "second"))
    return first, second


async def test_members_find_each_other_and_read_rosters(api: Any) -> None:
    first, second = two(api)
    assert await first.look() == []
    assert not first.others_found
    await first.publish([first.name])
    assert await first.look() == []
    await second.publish([second.name, first.name])
    assert first.name != second.name
    [seen] = await first.look()
    assert seen == members.Member(second.name, "second", frozenset({first.name, second.name}))
    assert first.others_found
    await second.publish([second.name])
    [seen] = await first.look()
    assert (seen.member_set, seen.renewed) == (frozenset({second.name}), True)
    first.start_over()
    assert [each.renewed for each in await first.look()] == [False]


async def test_the_lease_says_who_and_how_long(api: Any) -> None:
    first, _ = two(api)
    began = await first.publish([first.name, "another"])
    made = await api.ask("GET", f"{LEASES}/{first.name}")
    assert made["metadata"]["labels"] == {members.LABEL: "hpad"}
    assert made["metadata"]["annotations"] == {members.MEMBER_SET: " ".join(sorted(["another", first.name]))}
    assert (made["spec"]["holderIdentity"], made["spec"]["leaseDurationSeconds"]) == ("first", 15)
    assert made["spec"]["renewTime"].startswith(lease.micro_time(began.wall)[:19])


async def test_who_gives_its_lease_up_counts_no_more(api: Any) -> None:
    first, second = two(api)
    await second.publish([second.name])
    assert len(await first.look()) == 1
    await second.release()
    assert await first.look() == []
    assert first.others_found


async def test_a_bystanders_write_is_found_and_built_upon(api: Any) -> None:
    first, second = two(api)
    await first.publish([first.name])
    await api.ask("PATCH", f"{LEASES}/{first.name}", {"metadata": {"labels": {"seen": "yes"}}})
    assert await first.look() == []
    await api.ask("PATCH", f"{LEASES}/{first.name}", {"metadata": {"labels": {"seen": "no"}}})
    await first.publish([first.name])
    assert (await api.ask("GET", f"{LEASES}/{first.name}"))["metadata"]["labels"]["seen"] == "no"
    assert len(await second.look()) == 1


async def test_a_lease_deleted_by_hand_is_missed_by_its_member_and_respected_by_others(api: Any) -> None:
    first, second = two(api)
    await first.publish([first.name])
    await second.publish([second.name])
    assert len(await second.look()) == 1
    await api.ask("DELETE", f"{LEASES}/{first.name}")
    [missed] = await second.look()
    assert (missed.name, missed.member_set) == (first.name, None)
    await first.publish([first.name, second.name])
    [found] = await second.look()
    assert found.member_set == {first.name, second.name}


async def test_a_member_known_from_rosters_alone_is_hearsay(api: Any) -> None:
    first, second = two(api)
    await second.publish([second.name, first.name, "hpad-unknown"])
    seen = await first.look()
    assert [(each.name, each.listed_only, each.member_set is None) for each in seen if each.listed_only] == [
        ("hpad-unknown", True, True)
    ]


async def test_old_leases_are_deleted_and_those_of_the_living_are_not(api: Any) -> None:
    told = Election(enabled=True, shards=True, namespace=api.namespace)
    quick = msgspec.structs.replace(
        told, lease_duration=told.lease_duration / 300, retry_period=told.retry_period / 300
    )
    old, living = (members.Members(api.client, told, identity=name) for name in ("old", "living"))
    tidier = members.Members(api.client, quick, identity="tidier")
    await old.publish([old.name])
    await old.release()
    await living.publish([living.name])
    await tidier.look()
    await api.client.clock.sleep(1.1)
    await tidier.look()
    await tidier.delete_expired()
    left = {each["metadata"]["name"] for each in (await api.ask("GET", LEASES))["items"]}
    assert left == {living.name}
