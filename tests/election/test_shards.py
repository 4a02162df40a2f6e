"""At most one member owns an HPA at any time, and soon one does. Under virtual time."""

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest
import structlog
from support import shard_members, virtual_time
from support.lease_candidates import OddClock, odd
from support.shard_members import ELECTION, KEYS, Server, ShardMember
from support.virtual_time import in_virtual_time, now, until

from hpad.api.metadata import Key
from hpad.election import lease, shards
from hpad.election.assignment import Assignment, weight
from hpad.election.leader import Leader, Replica
from hpad.settings.model import JITTER, SHARD_BY_NAMESPACE, Election
from hpad.telemetry import Telemetry

TICKS = 1600
LONGEST_PAUSE = ELECTION.retry_period.total_seconds() * (1 + JITTER)
"""Seconds between two attempts of a candidate: it may notice a renewal, and an expiry, that much later."""


def covered(*members: ShardMember) -> bool:
    """Whether each key has exactly one owner."""
    owned = [key for shard_member in members for key in shard_member.owned]
    return sorted(owned) == sorted(KEYS)


@in_virtual_time
async def test_the_only_member_owns_all_hpas_after_a_lease_duration() -> None:
    only = ShardMember("a", Server()).start()
    assert await until(lambda: only.owned) == pytest.approx(15, abs=2.1)
    assert covered(only)
    await asyncio.sleep(300)
    assert covered(only)
    assert only.changes == 1
    await only.stop()


@pytest.mark.parametrize(("cut", "level"), [(False, "info"), (True, "warning")])
def test_an_unintended_end_of_membership_is_logged_as_a_warning(cut: bool, level: str) -> None:
    async def main() -> None:
        only = ShardMember("a", Server()).start()
        await until(lambda: only.owned)
        only.network.cut = cut
        await asyncio.sleep(20)
        assert bool(only.owned) != cut
        await only.stop()

    with structlog.testing.capture_logs() as logs:
        virtual_time.run(main())
    assert [line["log_level"] for line in logs if line["event"] == "stopped acting as a member"] == [level]


@in_virtual_time
async def test_three_members_divide_the_hpas_and_keep_their_assignments() -> None:
    server = Server()
    three = [ShardMember(name, server).start() for name in "abc"]
    await until(lambda: covered(*three) and all(each.owned for each in three))
    changes = [each.changes for each in three]
    await asyncio.sleep(300)
    assert covered(*three)
    assert [each.changes for each in three] == changes
    assert all(each.shards.size == 3 for each in three)
    for each in three:
        await each.stop()


@in_virtual_time
async def test_members_know_each_other_and_how_many_hpas_each_has() -> None:
    server = Server()
    three = [ShardMember(name, server).start() for name in "abc"]
    assert three[0].shards.replicas(KEYS) == (Replica("a-1", "joining", 0),)
    await until(lambda: covered(*three) and all(each.owned for each in three))
    await asyncio.sleep(10)
    owned = {f"{each.name}-1": len(each.owned) for each in three}
    for each in three:
        own, *others = each.shards.replicas(KEYS)
        assert own == Replica(f"{each.name}-1", "member", len(each.owned))
        assert {other.identity: other.owned for other in (own, *others)} == owned
        assert {other.role for other in others} == {"member"}
    for each in three:
        await each.stop()


@pytest.mark.parametrize(("seed", "rough"), [*((seed, True) for seed in range(6)), (6, False)])
@in_virtual_time
async def test_no_hpa_has_two_owners_and_each_soon_has_one(seed: int, rough: bool) -> None:
    """Requests are slow, fail, hang, or arrive late; networks are cut; members start, end and are killed; other clients
    write and delete Leases; clocks disagree."""
    dice = random.Random(seed)
    server = Server()
    five = [
        ShardMember(name, server, clock=odd(dice), dice=random.Random(f"{seed}{name}") if rough else None)
        for name in "abcde"
    ]
    doubles: list[Any] = []
    owners: dict[Any, set[int]] = {key: set() for key in KEYS}

    def check() -> None:
        doubles.extend((now(), key) for key in shard_members.claimed_twice(five))

    server.touched = check
    for each in five[:3]:
        each.start()
    owned = 0
    for _ in range(TICKS):
        await asyncio.sleep(0.25)
        check()
        assert doubles == []
        for number, each in enumerate(five):
            owned += len(each.owned)
            for key in each.owned:
                owners[key].add(number)
        trouble(dice, server, five)
    assert owned > 0.2 * TICKS * len(KEYS)
    for each in five:
        each.network.calm()
        if not each.running:
            each.start()
    await until(lambda: covered(*five), 60)
    for each in five:
        await each.stop()
    assert doubles == []
    assert all(len(each) > 1 for each in owners.values())
    assert len(set.union(*owners.values())) >= 4  # one member may never have run long enough


@in_virtual_time
async def test_a_crashed_member_is_replaced_after_its_lease_duration_and_not_before() -> None:
    server = Server()
    three = [ShardMember(name, server).start() for name in "abc"]
    await until(lambda: covered(*three))
    await asyncio.sleep(20)
    three[0].kill()
    died = now()
    taken = await until(lambda: covered(*three[1:]))
    for each in three[1:]:
        await each.stop()
    assert 15 <= taken - died <= 15 + 1.5 * 2 + 0.5  # it may have acted until it died


@in_virtual_time
async def test_after_an_orderly_end_the_others_take_over_in_their_next_round() -> None:
    server = Server()
    three = [ShardMember(name, server).start() for name in "abc"]
    await until(lambda: covered(*three))
    await asyncio.sleep(20)
    ended = now()
    await three[0].stop()
    taken = await until(lambda: covered(*three[1:]))
    for each in three[1:]:
        await each.stop()
    assert taken - ended <= 2 + 0.5


@in_virtual_time
async def test_a_new_member_owns_hpas_after_two_rounds() -> None:
    server = Server()
    two = [ShardMember(name, server).start() for name in "ab"]
    await until(lambda: covered(*two) and all(each.owned for each in two))
    before = [each.owned for each in two]
    third = ShardMember("c", server).start()
    came = now()
    taken = await until(lambda: third.owned and covered(*two, third), every=0.01)
    for each, had in zip(two, before, strict=True):
        assert each.owned <= had, "no key moves between other members"
        await each.stop()
    await third.stop()
    assert taken - came <= 2 * 2 + 0.7


@in_virtual_time
async def test_a_member_that_is_cut_off_owns_nothing_after_the_renew_deadline_and_comes_back() -> None:
    server = Server()
    two = [ShardMember(name, server).start() for name in "ab"]
    await until(lambda: covered(*two))
    await asyncio.sleep(30)
    two[0].network.cut = True
    cut = now()
    ended = await until(lambda: not two[0].owned)
    assert 10 - 2.1 <= ended - cut <= 10.1
    await until(lambda: covered(two[1]))
    two[0].network.cut = False
    await until(lambda: covered(*two) and two[0].owned)
    for each in two:
        await each.stop()


@in_virtual_time
async def test_a_process_resumed_after_a_stop_owns_nothing_even_before_its_timers_run() -> None:
    only = ShardMember("a", Server()).start()
    await until(lambda: only.owned)
    asyncio.get_running_loop().jump(10.5)  # type: ignore[attr-defined]  # a VirtualLoop
    assert not only.owned
    assert not any(only.shards.may_save(key) for key in KEYS)
    await until(lambda: only.owned, 5)
    await only.stop()


@in_virtual_time
async def test_a_wall_clock_step_ends_the_assignment_until_the_next_round() -> None:
    only = ShardMember("a", Server()).start()
    await until(lambda: only.owned)
    only.clock.skew += timedelta(hours=1)
    assert not only.owned
    await until(lambda: only.owned, 2.5)
    await only.stop()


@in_virtual_time
async def test_an_hpa_is_handed_off_only_after_its_state_was_saved() -> None:
    """Until then only the former owner may save the state."""
    server = Server()
    first, second = ShardMember("a", server).start(), ShardMember("b", server)
    await until(lambda: first.owned)
    done = asyncio.Event()

    async def wait() -> None:
        assert first.owned < set(KEYS)
        assert all(first.shards.may_save(key) for key in KEYS)
        await done.wait()

    first.shards.before_handing_off(wait)
    second.start()
    await until(lambda: len(first.owned) < len(KEYS))
    await asyncio.sleep(3)
    assert not second.owned
    done.set()
    await until(lambda: second.owned, 2)
    assert covered(first, second)
    assert not any(first.shards.may_save(key) for key in second.owned)
    await first.stop()
    await second.stop()


@in_virtual_time
async def test_leases_that_expired_long_ago_are_deleted() -> None:
    server = Server()
    two = [ShardMember(name, server).start() for name in "ab"]
    await until(lambda: covered(*two))
    two[0].kill()
    await asyncio.sleep(100)
    assert len(server.member_sets) == 2
    await asyncio.sleep(400)
    assert set(server.member_sets) == {two[1].members.name}
    assert covered(two[1])
    await two[1].stop()


# --- Beside a process with leader election ---


@pytest.mark.parametrize("leader_first", [True, False])
@in_virtual_time
async def test_a_leader_and_members_respect_each_other(leader_first: bool) -> None:
    """The one that starts second waits until the other has ended."""
    server = Server()
    shard_member = ShardMember("a", server)
    clock = OddClock(offset=5)
    network: Any = shard_members.Network(server, clock, None)
    leader = Leader(lease.Elector(network, Election(enabled=True), identity="l"), ELECTION, Telemetry(), clock)
    alone = asyncio.create_task(leader.run()) if leader_first else None
    await asyncio.sleep(3)
    shard_member.start()
    if alone is None:
        await until(lambda: shard_member.owned)
        alone = asyncio.create_task(leader.run())
        await asyncio.sleep(100)
        assert not leader.leading
        await shard_member.stop()
        await until(lambda: leader.leading, ELECTION.lease_duration.total_seconds() + 2 * LONGEST_PAUSE + 1)
    else:
        await asyncio.sleep(100)
        assert leader.leading
        assert not shard_member.owned
    alone.cancel()
    await asyncio.gather(alone, return_exceptions=True)
    if leader_first:
        await until(lambda: shard_member.owned, 20)
        await shard_member.stop()


BY_NAMESPACE = Election(enabled=True, shards=True, shard_by=SHARD_BY_NAMESPACE)
TEAMS = tuple(Key(f"team-{number // 3}", f"app-{number}") for number in range(36))


def split(*members: ShardMember) -> list[str]:
    """Returns the namespaces with HPAs of several owners."""
    owners: dict[str, set[str]] = {}
    for member in members:
        for key in member.owned:
            owners.setdefault(key.namespace, set()).add(member.name)
    return [namespace for namespace, names in owners.items() if len(names) > 1]


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_all_hpas_of_a_namespace_have_the_same_owner_if_namespaces_are_shared(seed: int) -> None:
    """With the faults of networks, clocks and other clients as above."""
    dice, server = random.Random(seed), Server()
    four = [
        ShardMember(
            name, server, election=BY_NAMESPACE, clock=odd(dice), dice=random.Random(f"{seed}{name}"), keys=TEAMS
        )
        for name in "abcd"
    ]
    for each in four[:3]:
        each.start()
    owned = 0
    for _ in range(TICKS // 2):
        await asyncio.sleep(0.25)
        owned += sum(len(each.owned) for each in four)
        assert shard_members.claimed_twice(four) == []
        assert split(*four) == []
        trouble(dice, server, four)
    assert owned
    for each in four:
        each.network.calm()
        if not each.running:
            each.start()
    await until(lambda: sorted(key for each in four for key in each.owned) == sorted(TEAMS), 60)
    assert split(*four) == []
    for each in four:
        await each.stop()


@in_virtual_time
async def test_a_member_expects_its_namespaces_before_the_others_have_acknowledged_them() -> None:
    server = Server()
    two = [ShardMember(name, server, election=BY_NAMESPACE, keys=TEAMS) for name in "ab"]
    one, other = two[0].start(), two[1]
    assert not any(one.shards.expects(key.namespace) for key in TEAMS), "it is no member yet"
    await until(lambda: one.owned)
    assert all(one.shards.expects(key.namespace) for key in TEAMS)
    other.start()
    gained = await until(lambda: other.owned) and {key.namespace for key in other.owned}
    assert {key.namespace for key in TEAMS if other.shards.expects(key.namespace)} == gained
    assert not any(one.shards.expects(namespace) for namespace in gained)
    own, another = one.shards.replicas(TEAMS)
    assert (own.owned, another.owned) == (len(one.owned), len(other.owned))
    for each in two:
        await each.stop()


@in_virtual_time
async def test_members_that_share_hpas_and_members_that_share_namespaces_exclude_each_other() -> None:
    server = Server()
    first, second = ShardMember("a", server), ShardMember("b", server, election=BY_NAMESPACE)
    first.start()
    await until(lambda: first.owned)
    second.start()
    await asyncio.sleep(100)
    assert first.owned == set(KEYS)
    assert not second.owned
    await first.stop()
    await until(lambda: second.owned == set(KEYS), 2 * ELECTION.lease_duration.total_seconds())
    await second.stop()


# --- Assignments and states ---


A, B, C = "a", "b", "c"


def key_of(*ranking: str) -> Key:
    """Returns a key for which the members have this order."""
    for number in range(10_000):
        key = Key("default", f"k{number}")
        if tuple(sorted(ranking, key=lambda each: -weight(key, each))) == ranking:
            return key
    raise AssertionError


def test_an_assignment_follows_from_all_member_sets() -> None:
    ours, theirs = key_of(A, B, C), key_of(B, A, C)
    alone: frozenset[str] = frozenset({A})
    both, all_three = frozenset({A, B}), frozenset({A, B, C})
    assert Assignment(A, {}, alone).owns(theirs)
    assert not Assignment(A, {}, both).owns(theirs), "the published set contains a member that comes first"
    assert not Assignment(A, {B: all_three}, alone).owns(theirs), "a member that is alive comes first"
    assert Assignment(A, {B: both}, both).owns(ours)
    assert not Assignment(A, {B: frozenset({B})}, both).owns(ours), "the other member does not list this one"
    assert Assignment(A, {C: frozenset({B, C})}, alone).owns(ours), (
        "the other does not list this one, but gives the key to a third"
    )
    assert not Assignment(A, {B: None}, both).owns(ours), "the member set of the other is not known"
    assert Assignment(A, {B: both}, both).acknowledged_by_all
    assert not Assignment(A, {B: None}, both).acknowledged_by_all


def trouble(dice: random.Random, server: Server, five: list[ShardMember]) -> None:
    """Cuts and mends networks; ends, kills and starts members; writes and deletes Leases as another client."""
    for each in five:
        if dice.random() < (0.03 if each.network.cut else 0.002):
            each.network.cut = not each.network.cut
        if dice.random() < (0.003 if each.running else 0.03):
            dice.choice([each.end, each.kill])() if each.running else each.start()
    if server.leases and dice.random() < 0.01:
        name = dice.choice(sorted(server.leases))
        if dice.random() < 0.5:
            server.commit(server.leases[name])
        else:
            del server.leases[name]


@pytest.mark.parametrize("event", list(shards.Event))
@pytest.mark.parametrize("state", list(shards.State))
def test_each_event_has_one_next_state_or_is_impossible(state: shards.State, event: shards.Event) -> None:
    """The whole table, written as one row per state: the next states by event, None for events that cannot come."""
    outside, observing, joining, member, handing_off = shards.State
    arrived, all_known, assigned, reassigned, handed_off, lost = shards.Event
    impossible = dict.fromkeys(shards.Event)
    rows: dict[shards.State, dict[shards.Event, shards.State]] = {
        outside: {arrived: observing, handed_off: outside, lost: outside},
        observing: {all_known: joining, lost: outside},
        joining: {assigned: member, lost: outside},
        member: {assigned: member, reassigned: handing_off, lost: outside},
        handing_off: {handed_off: member, lost: outside},
    }
    assert shards.TRANSITIONS.get((state, event)) is {**impossible, **rows[state]}[event]


def test_a_member_can_reach_each_state_and_leave_it() -> None:
    """From OUTSIDE every state is reachable, and one event leads back to it from everywhere."""
    reached = {shards.State.OUTSIDE}
    for _ in shards.State:
        reached |= {after for (before, _), after in shards.TRANSITIONS.items() if before in reached}
    assert reached == set(shards.State)
    assert {shards.TRANSITIONS[state, shards.Event.LOST] for state in shards.State} == {shards.State.OUTSIDE}


@in_virtual_time
async def test_a_member_passes_through_all_states() -> None:
    """Alone it reads for a lease duration; a second member takes HPAs over; after a cut it is a member again."""
    server = Server()
    first, second = ShardMember("a", server).start(), ShardMember("b", server)
    saving: list[shards.State] = []

    async def save() -> None:
        saving.append(first.shards.state)

    first.shards.before_handing_off(save)
    await until(lambda: first.shards.state is shards.State.OBSERVING)
    assert not first.owned
    await until(lambda: first.shards.state is shards.State.MEMBER)
    assert covered(first)
    second.start()
    await until(lambda: second.owned)
    assert set(saving) == {shards.State.HANDING_OFF}
    first.network.cut = True
    await until(lambda: first.shards.state is shards.State.OUTSIDE)
    assert not first.owned
    first.network.cut = False
    await until(lambda: first.shards.state is shards.State.MEMBER)
    await first.stop()
    assert first.shards.state is shards.State.OUTSIDE
    await second.stop()
