"""One life of a broker in its group: what the coordinator decides is done here, and what happens is told to it.

A life begins as a slave without a master, is promoted once at most, and ends with what the next one is to begin with:
nothing that was promised is ever taken back while it lasts. Effects are done strictly in their order; what waits for
the engine is asked for and comes back as an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from mqcore import clock
from mqcore.address import parse_address
from mqcore.broker.ports import GroupLog
from mqcore.broker.security.signature import signed
from mqcore.codes import RequestCode, ResponseCode
from mqcore.config import BrokerRole, Settings
from mqcore.config.credentials import parse_credentials
from mqcore.errors import BrokerError, EngineError, MQError, ProtocolError, UnfitMemberError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.group_bodies import GroupFacts, MemberStatus
from mqcore.protocol.ha_bodies import EpochCache, EpochStart
from mqcore.store.epochs import EpochEntry, held_by

from . import effects
from .announcer import Announcer
from .coordinator import Coordinator, Outcome, Pace, Phase
from .effects import Effect
from .etcd import EtcdEngine
from .facts import Announcement, GroupOrder, LeaderFacts, LogFacts, Surroundings
from .group_keys import MEMBERS, ORDER, GroupView, encode
from .group_state import GroupState
from .identity import IdentityKeeper
from .life import CopyAgain, CutLog, EmptyStore, LifeEnd, LiveAgain, LivingBroker, StopForGood
from .negotiation import Clash, CutTo, GoOn, StartOver, entries_of, meet
from .send_pause import SendPause
from .service import Service

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.05
"""How often the coordinator looks, when nothing happens."""

WATCHED_S: Final = 0.02
"""How often it is looked whether the log is still being copied."""

CONNECT_S: Final = 0.5
ASK_TIMEOUT_S: Final = 2.0
RETRY_S: Final = 0.1
SOON_S: Final = 0.02
"""When a master is asked again that was elected just now: it leads within a moment, and waits for its followers."""

RETRY_MAX_S: Final = 1.0
MASTER_SILENT_MS: Final = 1_500
"""A master that has sent nothing for so long, not even a heart-beat, is not heard."""

LINE_PAUSE_S: Final = 30.0
ORDERED_S: Final = 3.0
"""How long a master takes no sends for another one that was named."""


class FailoverDriver:
    """Drives the life of *host*, which is given when it has started; before that it is nobody's master."""

    def __init__(
        self, settings: Settings, identity: IdentityKeeper, engine: EtcdEngine, names: EtcdEngine, nonce: int
    ) -> None:
        """*names* announces this broker and keeps its lease over lives; *nonce* is of this life."""
        assert identity.now.member is not None
        self._settings = settings
        self._options = settings.failover
        self._identity = identity
        self._engine = engine
        self._nonce = nonce
        self._me = identity.now.member
        self._credentials = parse_credentials(settings.broker.inner_client_authentication_credentials)
        self._events: asyncio.Queue[Callable[[], list[Effect]]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._followed: GroupState | None = None
        self._swapping: effects.SwapState | None = None
        self._host: LivingBroker | None = None
        self._pause: SendPause | None = None
        self._coordinator: Coordinator | None = None
        self._view = GroupView()
        self._epochs: tuple[EpochEntry, ...] = ()
        self._end: LifeEnd | None = None
        self._is_master = False
        self._is_promoted = False
        self._epoch_start = 0
        self._doubted_epoch = 0
        self._is_leaving = False
        self._has_broken = False
        self._master_refuses = False
        self._whole_at: int | None = None
        self._engine_heard_s = 0.0
        self._announcer = Announcer(names, self._me, self._options.lease_seconds, self._announcement)
        self._service = Service(settings, self._me, self._announcer)
        self._said_at_s: dict[str, float] = {}
        self._why = "it founds the group"
        self._changed_ms = 0

    # ------------------------------------------------------------------------------------------------- what it is asked

    @property
    def member(self) -> int:
        return self._me

    @property
    def epoch(self) -> int:
        return self._identity.now.seen_epoch

    @property
    def is_master(self) -> bool:
        return self._is_master

    @property
    def takes_changes(self) -> bool:
        """Whether it is the master, and does not give its place away."""
        has_broken = self._host is not None and self._host.lost_from is not None
        is_replaced = self._is_leaving or (self._pause is not None and self._pause.is_on)
        return self._is_master and not is_replaced and not (has_broken and self.has_successor)

    @property
    def registered_id(self) -> int:
        """The id by which name servers are to know it: 0 for a master, unless it may have been replaced."""
        return 0 if self._is_master and not self._service.is_hidden else self._me

    @property
    def state(self) -> GroupState | None:
        """The state of the group, as this broker goes by it."""
        return self._coordinator.state if self._coordinator is not None else None

    @property
    def is_in_sync(self) -> bool:
        """Whether the group counts on what this broker has."""
        return self.state is not None and self._me in self.state.isr

    @property
    def has_successor(self) -> bool:
        """Whether another one who is there could lead."""
        others = self.state.isr - {self._me} if self.state is not None else frozenset[int]()
        return any(other in self._view.alive and not self._view.alive[other].leaving for other in others)

    def epoch_cache(self) -> EpochCache:
        broker = self._settings.broker
        end = self._host.group_log.end if self._host is not None else 0
        return EpochCache(
            cluster_name=broker.broker_cluster_name,
            broker_name=broker.broker_name,
            broker_id=self._me,
            epoch_list=[EpochStart(entry.epoch, entry.start) for entry in held_by(self._epochs, end)],
            max_offset=end,
            min_offset=self._host.log_start if self._host is not None else 0,
            term=self.state.epoch if self._is_master and self.state is not None else 0,
            role="MASTER" if self._is_master else "SLAVE",
            ha_address=self._host.addresses[1] if self._host is not None else "",
            doubts_ms=self._log.doubts_ms if self._is_master else 0,
        )

    def facts(self) -> GroupFacts:
        state, broker = self.state, self._settings.broker
        log = self._host.group_log if self._host is not None else None
        leader = log.leader_facts(state.isr) if log is not None and state is not None and self._is_master else None
        heard_s = max(self._engine_heard_s, self._announcer.heard_s)
        silent_ms = int((clock.monotonic_s() - heard_s) * 1000) if heard_s else -1
        known = sorted({*self._view.members, *self._view.alive, *(state.isr if state is not None else ())})
        return GroupFacts(
            cluster=broker.broker_cluster_name,
            broker_name=broker.broker_name,
            me=self._me,
            phase=self._coordinator.phase.name.lower() if self._coordinator is not None else "starting",
            is_master=self._is_master,
            epoch=state.epoch if state is not None else 0,
            master=state.master if state is not None else None,
            master_address=state.address if state is not None else "",
            in_sync=state.isr if state is not None else frozenset(),
            end=log.end if log is not None else 0,
            confirmed=log.confirmed if log is not None else 0,
            epoch_start=leader.epoch_start if leader is not None else -1,
            changed_ms=self._changed_ms,
            why=self._why,
            engine_silent_ms=silent_ms,
            member_statuses=[self._status(member, leader) for member in known],
        )

    def _status(self, member: int, leader: LeaderFacts | None) -> MemberStatus:
        said = self._view.alive.get(member)
        if member == self._me and self._host is not None:
            said = self._announcement()
        joined = self._view.members.get(member)
        last = said or self._view.announced.get(member)
        heard = leader.members.get(member) if leader is not None else None
        end = self._host.group_log.end if self._host is not None else 0
        acked = end if member == self._me and self._is_master else heard.acked if heard is not None else -1
        return MemberStatus(
            member=member,
            address=last.address if last is not None else "",
            is_there=said is not None,
            is_in_sync=self.state is not None and member in self.state.isr,
            is_trusted=said is not None and said.trusted,
            is_removed=joined is not None and joined.removed,
            is_leaving=said is not None and said.leaving,
            last_epoch=last.last_epoch if last is not None else 0,
            end=last.end if last is not None else -1,
            acked=acked,
            behind_bytes=max(0, end - acked) if acked >= 0 else 0,
            behind_ms=heard.behind_ms if heard is not None else 0,
            priority=said.priority if said is not None else 0,
        )

    def check_order(self, to: int, *, unclean: bool = False) -> None:
        state = self.state
        said = self._view.alive.get(to)
        if state is None or to not in self._view.members or self._view.members[to].removed:
            raise UnfitMemberError(f"the group has no member {to}")
        if to == state.master and said is not None:
            raise UnfitMemberError(f"member {to} leads already")
        if said is None:
            raise UnfitMemberError(f"member {to} does not announce itself")
        if not unclean and (to not in state.isr or not said.trusted):
            raise UnfitMemberError(f"member {to} is not in sync: messages that were acknowledged would be lost")

    async def order(self, to: int, *, unclean: bool = False) -> None:
        self.check_order(to, unclean=unclean)
        assert self.state is not None
        order = GroupOrder(to, self.state.epoch, unclean)
        if self._pause is None or not self._is_master or unclean:
            return await self._put_order(order)
        if self._pause.is_on:
            raise UnfitMemberError("another member was named just now, and is about to lead")
        try:
            await self._pause.begin()
            self.check_order(to)
            await self._put_order(order)
        except BaseException:
            self._end_pause()
            raise
        if self._end is None:  # or the other one leads already, and later orders are not to be taken back
            self._spawn(self._end_pause_late(order))

    async def _put_order(self, order: GroupOrder) -> None:
        await self._engine.put(ORDER, encode(order))

    async def _end_pause_late(self, order: GroupOrder) -> None:
        await asyncio.sleep(ORDERED_S)
        logger.warning("member %d was named and does not lead: sends are taken again", order.to)
        if not self._is_leaving and not self._has_broken:
            # Or the other one would stand some time later, when nobody reckons with it any more.
            with contextlib.suppress(EngineError):
                await self._put_order(GroupOrder(self._me, order.epoch))
        self._end_pause()

    def _end_pause(self) -> None:
        if self._pause is not None and not self._is_leaving:
            self._pause.end()

    def check_remove(self, member: int) -> None:
        state, known = self.state, self._view.members.get(member)
        if known is None:
            raise UnfitMemberError(f"the group has no member {member}")
        if known.removed:
            raise UnfitMemberError(f"member {member} was removed already")
        if member in self._view.alive:
            raise UnfitMemberError(f"member {member} announces itself; stop it first")
        if state is not None and member in state.isr:
            raise UnfitMemberError(f"member {member} is in sync")

    async def remove(self, member: int) -> None:
        self.check_remove(member)
        await self._engine.put(f"{MEMBERS}{member}", encode(self._view.members[member].as_removed()))

    def leave(self) -> None:
        """This broker is about to stop."""
        self._is_leaving = True
        if self._coordinator is not None:
            self._coordinator.leave()
        self._announcer.soon()

    def end(self, why: str) -> None:
        """End this life."""
        self._events.put_nowait(lambda: self._ended(why))

    def _ended(self, why: str) -> list[Effect]:
        self._end = self._end or LiveAgain(why)
        return []

    # ---------------------------------------------------------------------------------------------------------- a life

    async def run(self, host: LivingBroker) -> LifeEnd:
        """Live, and return how the life ended: nothing is appended or acknowledged any more then."""
        self._host = host
        self._pause = SendPause(host)
        self._epochs = self._identity.files.read_epochs()
        if host.group_log.end < self._identity.now.floor:
            self._identity.change(is_trusted=False)
        host.group_log.introduce(self._me, self._nonce)
        try:
            self._spawn(self._keep_announcing())
            await self._work()
        finally:
            for task in (*self._tasks, *([self._following] if self._following is not None else [])):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._is_master = False
        assert self._end is not None
        return self._without_what_is_lost(self._end)

    def _without_what_is_lost(self, end: LifeEnd) -> LifeEnd:
        """Return *end*, or that what a failed sync may have lost is to be copied again."""
        assert self._host is not None
        lost_from = self._host.lost_from
        if lost_from is None or not isinstance(end, LiveAgain | CutLog):
            return end
        return CopyAgain(min(lost_from, end.point) if isinstance(end, CutLog) else lost_from)

    async def _work(self) -> None:
        while self._end is None:
            wanted: list[Effect] = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    event = await self._events.get()
                    wanted = event()
            await self._obey(wanted)
            if self._end is None and self._coordinator is not None:
                await self._obey(self._look())
        await self._log.stop_following()
        if self._is_master:
            await self._step_down()

    @property
    def _log(self) -> GroupLog:
        assert self._host is not None
        return self._host.group_log

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nobody would do what it was for: the next life begins with a new one.
            logger.error("a task of the group has failed", exc_info=error)
            self.end(f"failed: {error!r}")

    def _look(self) -> list[Effect]:
        """Let the coordinator look."""
        assert self._coordinator is not None
        state = self._coordinator.state
        if not self._has_broken:
            self._look_at_the_disk()
        leader = self._log.leader_facts(state.isr) if self._is_master and state is not None else None
        if leader is not None and state is not None:
            assert self._host is not None
            self._service.look(self._host, state, leader)
        elif self._has_become_whole():
            self._identity.change(is_trusted=True)
            self._announcer.soon()
            logger.info("the log has all again that it ever acknowledged end=%d", self._log.end)
        before = self._coordinator.phase
        around = self._surroundings()
        wanted = self._coordinator.look(int(clock.monotonic_s() * 1000), self._log_facts(), around, leader)
        if self._coordinator.phase is Phase.RANKING and before is not Phase.RANKING:
            self._why = self._reason(around)
            logger.info("stands for election member=%d epoch=%d why=%s", self._me, self.epoch + 1, self._why)
        return wanted

    def _log_facts(self) -> LogFacts:
        held = held_by(self._epochs, self._log.end)
        return LogFacts(held[-1].epoch if held else 0, self._log.end, self._identity.now.is_trusted)

    def _surroundings(self) -> Surroundings:
        alive = {member: said for member, said in self._view.alive.items() if member != self._me}
        seen_ms = self._log.master_seen_ms
        hears = self._log.is_followed_up and 0 <= seen_ms < MASTER_SILENT_MS
        return Surroundings(hears, self._master_refuses, alive, self._view.order)

    def _reason(self, around: Surroundings) -> str:
        """Say in words why this broker stands."""
        state = self.state
        assert state is not None
        order = around.order
        if order is not None and order.to == self._me and order.epoch == state.epoch:
            return "it was named, whatever is lost" if order.unclean else "it was named"
        if state.master == self._me:
            return "its last mastership was of an earlier life"
        what = "refuses connections" if around.master_refuses else "does not announce itself any more"
        return f"the master, member {state.master} at {state.address}, {what}"

    def _has_become_whole(self) -> bool:
        """Whether a log that had lost something has all again: its master had that when it was asked."""
        if self._identity.now.is_trusted or self._whole_at is None:
            return False
        return self._log.is_followed_up and self._log.end >= self._whole_at

    def _look_at_the_disk(self) -> None:
        """Note that a sync has failed: a master gives its place away as soon as there is somebody to take it."""
        assert self._host is not None
        assert self._coordinator is not None
        if self._host.lost_from is None:
            return
        self._has_broken = True
        # At once: a file system that is mounted anew has lost what was on no disk, and the kernel is the same.
        with contextlib.suppress(OSError):
            self._identity.change(is_trusted=False)
        if self._is_master:
            logger.error("a sync has failed: the place of the master is to be given away end=%d", self._log.end)
            self._coordinator.leave()
            self._announcer.soon()
        else:
            self._end = self._end or LiveAgain("a sync has failed")

    # --------------------------------------------------------------------------------------------------------- effects

    async def _obey(self, wanted: Sequence[Effect]) -> None:
        for effect in wanted:
            match effect:
                case effects.ReadState():
                    self._spawn(self._read())
                case effects.SwapState():
                    if effect != self._swapping:
                        self._swapping = effect
                        self._spawn(self._swap(effect))
                case effects.NoteEpoch(epoch):
                    self._identity.change(seen_epoch=epoch)
                case effects.Announce():
                    self._spawn(self._announce())
                case effects.Follow(state):
                    if self._end is None and not self._is_followed(state):
                        await self._stop_following()
                        self._followed = state
                        self._note_role("SLAVE", state)
                        self._following = asyncio.create_task(self._follow(state))
                        self._following.add_done_callback(self._on_done)
                case effects.StopFollowing():
                    await self._stop_following()
                case effects.Lead(state, _, unclean):
                    await self._lead(state, unclean=unclean)
                case effects.Require(generation, members):
                    self._log.require(generation, members)
                case effects.Demote(state):
                    await self._step_down()
                    self._end = LiveAgain(f"member {state.master} leads epoch {state.epoch}" if state else "demoted")
                case effects.Give(order):
                    self._spawn(self._give(order))
                case effects.CallOperator(reason):
                    self._end = StopForGood(reason)
        if self._is_master and not self._is_promoted:
            assert self._host is not None
            self._is_promoted = True
            await self._host.promote(self._epoch_start)

    async def _read(self) -> None:
        while True:
            try:
                revision, state = await self._engine.read()
            except EngineError as error:
                self._say("engine", "the engine cannot be asked error=%s", error)
                await asyncio.sleep(RETRY_S)
                continue
            except ProtocolError as error:
                self._end = self._end or StopForGood(str(error))
                return
            self._tell_state(revision, state)
            return

    def _tell_state(self, revision: int, state: GroupState | None) -> None:
        def tell() -> list[Effect]:
            assert self._coordinator is not None
            return self._coordinator.on_state(revision, state, int(clock.monotonic_s() * 1000))

        self._events.put_nowait(tell)

    async def _swap(self, effect: effects.SwapState) -> None:
        outcome, revision, state = await self._engine.swap(effect)

        def tell() -> list[Effect]:
            assert self._coordinator is not None
            self._swapping = None
            return self._coordinator.on_swap(effect, outcome, revision, state, int(clock.monotonic_s() * 1000))

        if outcome is Outcome.UNKNOWN:
            self._say("engine", "a change of the group's state has no answer, and is sent again")
        self._events.put_nowait(tell)

    async def _give(self, order: GroupOrder) -> None:
        try:
            await self._engine.put(ORDER, encode(order))
        except EngineError as error:
            logger.warning("the place cannot be given to member %d error=%s", order.to, error)

    # ------------------------------------------------------------------------------------------------------- announcing

    def _announcement(self) -> Announcement:
        assert self._host is not None
        facts = self._log_facts()
        address, ha_address = self._host.addresses
        return Announcement(
            facts.last_epoch, facts.end, facts.trusted, self._options.priority,
            self._is_leaving or self._has_broken, self._nonce, address, ha_address,
        )  # fmt: skip

    async def _announce(self) -> None:
        """Say what there is to say of this broker."""
        try:
            await self._announcer.announce()
        except EngineError as error:
            self._say("engine", "this broker cannot be announced error=%s", error)

    async def _keep_announcing(self) -> None:
        """Announce this broker, begin with it what only one that is announced may, and see that the view is not old."""
        is_watching = False
        while True:
            await self._announce()
            if self._announcer.is_name_taken:
                self._end = self._end or StopForGood(await self._name_taken())
                return
            if is_watching:
                with contextlib.suppress(EngineError):
                    await self._refresh()
            elif self._announcer.is_announced:
                is_watching = True
                self._spawn(self._watch())
            await self._announcer.rest()

    async def _name_taken(self) -> str:
        said = self._view.alive.get(self._me)
        with contextlib.suppress(EngineError, ProtocolError):
            said = GroupView.of(await self._engine.read_all()).alive.get(self._me)
        where = f" at {said.address}" if said is not None else ""
        return f"another process{where} announces itself as member {self._me}: was this store copied?"

    async def _watch(self) -> None:
        """Keep the view up; the coordinator begins with the first one."""
        while True:
            try:
                await self._refresh()
                async for change in self._engine.watch(self._view.revision):
                    if change.revision > self._view.revision:
                        self._view.take([change])
                        self._took()
            except EngineError as error:
                self._say("engine", "the group's keys cannot be watched error=%s", error)
            except ProtocolError as error:
                self._end = self._end or StopForGood(str(error))
                return
            await asyncio.sleep(RETRY_S)

    async def _refresh(self) -> None:
        """Read all keys: what a watch has not brought because its connection is dead, this does."""
        known = self._view.revision
        view = GroupView.of(await self._engine.read_all())
        self._engine_heard_s = clock.monotonic_s()
        cluster = self._identity.now.etcd_cluster
        if cluster and cluster != view.cluster:
            self._end = StopForGood(f"failoverEtcd is etcd's cluster {view.cluster}, and this store is of {cluster}")
            return
        if view.revision < known:
            # What was read is of a moment within the call, so it cannot be older than what was known before.
            reason = f"etcd is at revision {view.revision}, and {known} was seen: an old state restored?"
            self._end = StopForGood(reason)
            return
        if view.revision < self._view.revision:
            return
        self._identity.change(etcd_cluster=view.cluster)
        view.announced = {**self._view.announced, **view.announced}
        self._view = view
        if self._coordinator is None:
            self._begin()
        self._took()

    def _begin(self) -> None:
        assert self._host is not None
        self._coordinator = Coordinator(
            self._me,
            str(self._nonce),
            self._host.addresses[0],
            founder=self._settings.broker.broker_id == 0,
            seen_epoch=self._identity.now.seen_epoch,
            priority=self._options.priority,
            elects_unclean=self._options.enable_elect_unclean_master,
            pace=Pace(behind=self._options.ha_max_time_slave_not_catchup_ms),
        )
        if self._is_leaving:
            self._coordinator.leave()
        self._events.put_nowait(self._coordinator.start)

    def _took(self) -> None:
        """Go by what the view says."""
        removed = {member for member, known in self._view.members.items() if known.removed}
        nonces = {member: said.nonce for member, said in self._view.alive.items() if member not in removed}
        self._log.know(nonces)
        if self._me in removed:
            self._end = StopForGood(f"member {self._me} was removed from the group; empty the store to join anew")
        if self._view.state_revision:
            self._tell_state(self._view.state_revision, self._view.state)

    def _say(self, what: str, text: str, *arguments: object) -> None:
        """Log what goes on for long now and then."""
        now = clock.monotonic_s()
        if now >= self._said_at_s.get(what, 0.0):
            self._said_at_s[what] = now + LINE_PAUSE_S
            logger.warning(text, *arguments)

    # -------------------------------------------------------------------------------------------------------- following

    def _is_followed(self, state: GroupState) -> bool:
        """Whether it is this mastership that is followed; the in-sync set may have changed."""
        followed = self._followed
        return followed is not None and (followed.epoch, followed.nonce) == (state.epoch, state.nonce)

    async def _stop_following(self) -> None:
        self._followed = None
        task, self._following = self._following, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._log.stop_following()
        self._whole_at = None
        self._master_refuses = False

    async def _follow(self, state: GroupState) -> None:
        """Have the log copied from *state*'s master, again whenever it is not, until cancelled or this life is over."""
        pause_s = SOON_S
        while self._end is None:
            try:
                cache = await self._ask(state.address)
                self._master_refuses = False
                if cache.term == state.epoch and await self._copy(state, cache):
                    pause_s = 0.0
            except (MQError, OSError, TimeoutError) as error:
                self._master_refuses = await _is_refused(state.address)
                self._events.put_nowait(list)
                self._say("master", "the master cannot be asked address=%s error=%s", state.address, error)
            await asyncio.sleep(pause_s)
            pause_s = min(max(pause_s * 1.5, SOON_S), RETRY_MAX_S)

    async def _ask(self, address: str) -> EpochCache:
        assert self._host is not None
        request = RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE, ext_fields={})
        if self._credentials is not None:
            request = signed(request, self._credentials.access_key, self._credentials.secret_key.encode())
        reply = await self._host.caller.invoke(address, request, ASK_TIMEOUT_S)
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address)
        return EpochCache.decode(reply.body)

    async def _copy(self, state: GroupState, cache: EpochCache) -> bool:
        """Make sure that the log is the start of the master's, connect, and return when the connection has ended.

        False if there was none.
        """
        assert self._host is not None
        log = self._log
        end = log.end
        found = meet(held_by(self._epochs, end), self._host.log_start, end, cache, is_in_sync=self.is_in_sync)
        match found:
            case CutTo(point):
                if point < log.confirmed:
                    logger.error("confirmed messages are cut confirmed=%d point=%d", log.confirmed, point)
                self._end = CutLog(point)
            case Clash(why):
                self._end = StopForGood(f"this log cannot follow member {state.master} of epoch {state.epoch}: {why}")
            case GoOn(start):
                self._write_epochs(entries_of(cache))
                return await self._connect(state, cache, start)
            case StartOver(why):
                self._end = EmptyStore(why)
        return False

    async def _connect(self, state: GroupState, cache: EpochCache, start: int) -> bool:
        assert self._host is not None
        ha_address = cache.ha_address or ""
        ha = parse_address(ha_address)
        if cache.doubts_ms > 0 and self._doubted_epoch != state.epoch:
            # Before any of it comes, or more.
            self._log.doubt(cache.doubts_ms, has_some_of_it=self._log.end > cache.epoch_list[-1].start_offset)
            self._doubted_epoch = state.epoch
        found = await asyncio.get_running_loop().getaddrinfo(ha.host, ha.port, type=socket.SOCK_STREAM)
        self._log.follow(str(found[0][4][0]), ha.port, state.epoch, start)
        until = clock.monotonic_s() + CONNECT_S
        while not self._log.is_followed_up:
            if clock.monotonic_s() >= until:
                return False
            await asyncio.sleep(WATCHED_S)
        logger.info(
            "follows member=%d epoch=%d address=%s end=%d", state.master, state.epoch, state.address, self._log.end
        )
        self._whole_at = cache.max_offset
        self._host.follow(state.address, ha_address)
        while self._log.is_followed_up:
            await asyncio.sleep(WATCHED_S)
        return True

    def _write_epochs(self, entries: tuple[EpochEntry, ...]) -> None:
        if entries != self._epochs:
            self._identity.files.write_epochs(entries)
            self._epochs = entries

    # ---------------------------------------------------------------------------------------------------------- leading

    async def _lead(self, state: GroupState, *, unclean: bool) -> None:
        assert self._host is not None
        await self._stop_following()
        has_lost = unclean or not self._identity.now.is_trusted
        if has_lost:
            logger.error("messages that were acknowledged may be lost epoch=%d end=%d", state.epoch, self._log.end)
        try:
            await self._begin_epoch(state, may_lack=has_lost or self._is_asynchronous)
        except (MQError, OSError) as error:
            self._end = StopForGood(f"epoch {state.epoch} cannot begin: {error}")
            return
        self._is_master = True
        self._note_role("MASTER", state)

    @property
    def _is_asynchronous(self) -> bool:
        """Whether messages are given out that only their master has."""
        return self._settings.store.broker_role is BrokerRole.ASYNC_MASTER

    async def _begin_epoch(self, state: GroupState, *, may_lack: bool) -> None:
        assert self._host is not None
        await self._host.prepare_to_lead()
        end = self._log.end
        held = held_by(self._epochs, end)
        # What a founder has belongs to the group from its beginning.
        self._write_epochs((*held, EpochEntry(state.epoch, end if held else min(self._host.log_start, end))))
        self._identity.change(is_trusted=True)
        self._epoch_start = await self._log.lead(state.epoch, may_lack=may_lack)

    async def _step_down(self) -> None:
        assert self._host is not None
        if self._is_master:
            self._host.demote()
        self._is_master = False
        await self._log.stop_leading()
        self._identity.change(floor=max(self._identity.now.floor, self._log.confirmed))

    def _note_role(self, role: str, state: GroupState) -> None:
        """One line for each change of role."""
        if role == "SLAVE":
            self._why = f"member {state.master} leads"
        self._changed_ms = clock.now_ms()
        logger.info(
            "role=%s member=%d epoch=%d master=%d address=%s in_sync=%s end=%d why=%s", role, self._me, state.epoch,
            state.master, state.address, " ".join(map(str, sorted(state.isr))), self._log.end, self._why,
        )  # fmt: skip


async def _is_refused(address: str) -> bool:
    """Whether the host answers that nobody listens there."""
    where = parse_address(address)
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(where.host, where.port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
