"""A group in the model: random steps of brokers, connections and the engine, and what must hold after each.

The coordinators are those of a broker. Around them is the least that makes their decisions count: logs of whole
records, slaves that copy and acknowledge, an engine whose answers are late, lost, or both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Final, TypeVar

from mqcore.broker.failover import effects
from mqcore.broker.failover.coordinator import Coordinator, Outcome, Pace, Phase
from mqcore.broker.failover.effects import Effect
from mqcore.broker.failover.facts import Announcement, GroupOrder, Surroundings
from mqcore.broker.failover.group_state import GroupState
from mqcore.store.epochs import EpochEntry, held_by
from tests.failover.engine import Call, Engine
from tests.failover.replica import (
    Ack,
    Broker,
    Frame,
    Hello,
    Link,
    Process,
    StuckError,
    Violation,
    Welcome,
    is_up,
    joins,
)

T = TypeVar("T")

PACE = Pace(ranking=1, rank_step=1, retry=1, silent=1, behind=1_000_000, near=10)


WEIGHTS: Final = {
    "deliver": 300,
    "append": 40,
    "send_records": 140,
    "look": 160,
    "perform": 80,
    "answer": 80,
    "give_up": 8,
    "watch": 40,
    "take_required": 15,
    "connect": 60,
    "sync": 20,
    "close": 4,
    "kill": 2,
    "lose_power": 1,
    "start": 30,
    "order": 1,
    "order_unclean": 0.2,
    "leave": 0.5,
}
"""How often each step is tried; one that has nothing to do is tried again."""
FAULTS: Final = ("give_up", "close", "kill", "lose_power", "order", "order_unclean", "leave")
DRAWN_AT_ONCE: Final = 256
HEALING_STEPS: Final = 50
HEALING_STEPS_MAX: Final = 20_000
"""Most need some hundreds."""


def has_joined(process: Process) -> bool:
    """Whether a slave copies from it."""
    return any(link.is_joined for link in process.links)


class World:
    """Three brokers, the first of which founds the group. Rules are taken out by subclasses, see the tests."""

    coordinator: type[Coordinator] = Coordinator
    broker: type[Broker] = Broker
    weights: Mapping[str, float] = {}

    def __init__(self, random: Random, count: int = 3) -> None:
        self.random = random
        self.engine = Engine()
        self.brokers = [self.broker(me) for me in range(count)]
        self.links: list[Link] = []
        self.acknowledged: list[int] = []
        """Records that producers were told are stored, or consumers have read: all before some confirmed end."""
        self.owed: dict[int, int] = {}
        """By epoch, up to where that was said in it: masters of later epochs have it."""
        self.masters: dict[int, Process] = {}
        """Of each epoch, the process that led it."""
        self.done: Counter[str] = Counter()
        self.forgiven = 0
        """The epoch that began with what was left after all of a set lost power; older ones count no more."""
        self.ordered: GroupOrder | None = None
        """The last one that was given; it stays where it is."""
        self.allowed: set[tuple[int, int]] = set()
        """Who may begin which epoch although others may have more."""
        self.lossy: dict[GroupState, tuple[bool, str]] = {}
        """With what something may be lost: whether that was allowed, and why."""
        self.elects_unclean = random.random() < 0.05
        self.now = 0
        self.is_healed = False
        """Nothing is broken any more, and what brokers see of each other is true."""
        self._values = 0
        self._weights = WEIGHTS | self.weights

    def run(self, steps: int) -> None:
        """Take so many steps."""
        for broker in self.brokers:
            self.start_process(broker)
        self._take(steps, self._weights)

    def heal(self) -> None:
        """Break nothing any more: somebody leads soon, and all are in sync. Raises StuckError if not."""
        for process in [broker.process for broker in self.brokers if broker.process is not None]:
            if process.is_leaving:
                self.end(process)
        for broker in self.brokers:
            if broker.process is None:
                self.start_process(broker)
        self.is_healed = True
        for _ in range(HEALING_STEPS_MAX // HEALING_STEPS):
            self._take(HEALING_STEPS, self._weights | dict.fromkeys(FAULTS, 0))
            if self.is_whole_again():
                self.done["healed"] += 1
                return
        phases = [broker.process and broker.process.coordinator.phase.name for broker in self.brokers]
        raise StuckError(f"nothing is broken, and the group does not come together: {self.engine.state}, {phases}")

    def is_whole_again(self) -> bool:
        """Whether somebody leads, and all are in sync."""
        state = self.engine.state
        if state is None or len(state.isr) < len(self.brokers):
            return False
        master = self.brokers[state.master].process
        return master is not None and master.leads is not None and master.leads.epoch == state.epoch

    def _take(self, steps: int, weights: Mapping[str, float]) -> None:
        plan = self._planned([getattr(self, name) for name in weights], list(accumulate(weights.values())))
        for _ in range(steps):
            self.now += 1
            while not next(plan)():
                pass

    def _planned(self, names: list[Callable[[], bool]], shares: list[float]) -> Iterator[Callable[[], bool]]:
        """Draw steps; many at once, which is much cheaper than one by one."""
        while True:
            yield from self.random.choices(names, cum_weights=shares, k=DRAWN_AT_ONCE)

    @property
    def in_sync_max(self) -> int:
        """Return the size of the largest set that was stored."""
        return max((len(state.isr) for state in self.engine.history), default=0)

    # ------------------------------------------------------------------------------------------------------- brokers

    def start_process(self, broker: Broker) -> None:
        """Start a broker's next process."""
        broker.lives += 1
        broker.recover()
        coordinator = self.coordinator(
            broker.me,
            str(broker.nonce),
            "",
            founder=broker.me == 0,
            seen_epoch=broker.seen_epoch,
            priority=broker.me % 2,
            elects_unclean=self.elects_unclean,
            pace=PACE,
        )
        process = broker.process = Process(broker, coordinator)
        self.obey(process, coordinator.start())

    def start(self) -> bool:
        """A broker that is down comes back."""
        down = [broker for broker in self.brokers if broker.process is None]
        if not down:
            return False
        self.start_process(self.one_of(down))
        return True

    def kill(self) -> bool:
        """End a process: its memory is gone, all that it has written is there."""
        process = self.some_process()
        if process is None:
            return False
        self.done["kill"] += 1
        self.end(process)
        return True

    def end(self, process: Process) -> None:
        process.broker.process = None
        for link in self.links:
            if link.slave is process:
                link.is_closed_by_slave = True
            if link.master is process:
                link.is_closed_by_master = True

    def lose_power(self) -> bool:
        """End a machine: what was not synced may be gone."""
        process = self.some_process()
        if process is None:
            return False
        self.done["power"] += 1
        broker = process.broker
        self.end(process)
        broker.lose_power(self.random.randint(broker.synced, len(broker.records)))
        return True

    def sync(self) -> bool:
        """A broker's disk gets some of its log."""
        process = self.some_process(lambda process: process.broker.synced < len(process.broker.records))
        if process is None:
            return False
        process.broker.synced = self.random.randint(process.broker.synced, len(process.broker.records))
        return True

    def some_process(self, wanted: Callable[[Process], bool] | None = None) -> Process | None:
        """Return one of those that are up, and as wanted."""
        found = []
        for broker in self.brokers:
            process = broker.process
            if process is None or process.coordinator.phase is Phase.STOPPED:
                continue
            if wanted is None or wanted(process):
                found.append(process)
        return self.one_of(found) if found else None

    def one_of(self, things: Sequence[T]) -> T:
        """As Random.choice, at a third of its cost: to draw is a good part of what a schedule takes."""
        return things[int(self.random.random() * len(things))]

    # ------------------------------------------------------------------------------------------------------ decisions

    def look(self) -> bool:
        """Let a coordinator look, at surroundings that have little to do with the truth."""
        process = self.some_process()
        if process is None:
            return False
        leader = process.leader_facts(5 if self.random.random() < 0.1 else 0) if process.leads is not None else None
        around = self.surroundings(process)
        self.obey(process, process.coordinator.look(self.now, process.broker.facts(), around, leader))
        return True

    def surroundings(self, process: Process) -> Surroundings:
        alive = {}
        for broker in self.brokers:
            other = broker.process
            if broker is process.broker or other is None or other.coordinator.phase is Phase.STOPPED:
                continue
            last_epoch = broker.epochs[-1].epoch if broker.epochs else 0
            alive[broker.me] = Announcement(
                last_epoch, len(broker.records), broker.is_trusted, broker.me % 2, other.is_leaving, broker.nonce
            )
        if self.is_healed:
            return Surroundings(process.upstream is not None, False, alive, self.ordered)
        hears = process.upstream is not None and self.random.random() < 0.98
        return Surroundings(hears, self.random.random() < 0.1, alive, self.ordered)

    def order(self) -> bool:
        """An operator wants another master."""
        return self.give_order(unclean=False)

    def order_unclean(self) -> bool:
        """An operator wants another master, whatever is lost."""
        return self.give_order(unclean=True)

    def give_order(self, *, unclean: bool) -> bool:
        state = self.engine.state
        if state is None:
            return False
        self.ordered = GroupOrder(self.random.randrange(len(self.brokers)), state.epoch, unclean)
        if unclean:
            self.allowed.add((self.ordered.to, state.epoch + 1))
        return True

    def leave(self) -> bool:
        """A broker is about to stop."""
        process = self.some_process(lambda process: not process.is_leaving)
        if process is None:
            return False
        self.done["leave"] += 1
        process.is_leaving = True
        process.coordinator.leave()
        return True

    def take_required(self) -> bool:
        """An ha worker goes by the set that its coordinator wants."""
        process = self.some_process(lambda process: process.leads is not None and process.in_use != process.required)
        if process is None:
            return False
        process.in_use = process.required
        self.confirm(process)
        return True

    def obey(self, process: Process, wanted: list[Effect]) -> None:
        """Do what a coordinator wants."""
        for effect in wanted:
            if isinstance(effect, effects.SwapState):
                self.note_loss(process, effect)
            if isinstance(effect, effects.ReadState | effects.SwapState):
                self.engine.calls.append(Call(process, effect))
            elif isinstance(effect, effects.NoteEpoch):
                process.broker.seen_epoch = max(process.broker.seen_epoch, effect.epoch)
            elif isinstance(effect, effects.StopFollowing | effects.Follow):
                self.leave_upstream(process)
            elif isinstance(effect, effects.Lead):
                self.lead(process, effect)
            elif isinstance(effect, effects.Require):
                process.required = (effect.generation, effect.members)
            elif isinstance(effect, effects.Demote):
                self.demote(process)
            elif isinstance(effect, effects.Give):
                self.ordered = effect.order
                self.done["given away"] += 1
            elif isinstance(effect, effects.CallOperator):
                raise Violation(f"broker {process.broker.me}: {effect.reason}")

    def note_loss(self, process: Process, swap: effects.SwapState) -> None:
        """A broker stands although others may have more: note whether it may."""
        broker, epoch = process.broker, swap.state.epoch
        if swap.state in self.lossy or process.coordinator.phase is not Phase.STANDING:
            return
        if process.coordinator.is_unclean:
            may_be = (broker.me, epoch) in self.allowed or self.elects_unclean
            self.lossy[swap.state] = may_be, "unclean"
        elif not broker.is_trusted:
            others = self.engine.history[swap.expected - 1].isr - {broker.me} if swap.expected else ()
            self.lossy[swap.state] = not any(self.brokers[other].is_trusted for other in others), "all lost power"

    def leave_upstream(self, process: Process) -> None:
        if process.upstream is not None:
            self.close_by_slave(process.upstream)

    def lead(self, process: Process, effect: effects.Lead) -> None:
        """A master begins its epoch at the end of its log, and has all that was acknowledged."""
        broker, epoch = process.broker, effect.state.epoch
        if self.masters.setdefault(epoch, process) is not process:
            raise Violation(f"epoch {epoch} has two masters")
        self.done["lead"] += 1
        for state in self.engine.history:
            if self.forgiven < state.epoch <= epoch and state in self.lossy:
                self.forgive(state, broker)
        # One that hears late that it has won may begin when a later epoch has acknowledged more: nobody follows it.
        owed = max((end for earlier, end in self.owed.items() if earlier < epoch), default=0)
        if epoch >= self.forgiven and broker.records[:owed] != self.acknowledged[:owed]:
            raise Violation(f"broker {broker.me} leads epoch {epoch} and lacks what was acknowledged")
        self.leave_upstream(process)
        process.leads = effect.state
        process.epoch_start = len(broker.records)
        process.acked = {}
        process.required = process.in_use = (0, effect.required)
        self.begin_epoch(broker, epoch)
        broker.is_trusted = True

    def begin_epoch(self, broker: Broker, epoch: int) -> None:
        broker.epochs = (*broker.epochs, EpochEntry(epoch, len(broker.records)))

    def forgive(self, state: GroupState, broker: Broker) -> None:
        """From the epoch of *state* on only that counts which *broker* has."""
        may_be, what = self.lossy[state]
        if not may_be:
            raise Violation(f"broker {state.master} leads epoch {state.epoch}, and {what}")
        self.done[what] += 1
        self.forgiven = state.epoch
        kept = 0
        while kept < min(len(self.acknowledged), len(broker.records)) and (
            self.acknowledged[kept] == broker.records[kept]
        ):
            kept += 1
        del self.acknowledged[kept:]
        self.owed = {earlier: min(end, kept) for earlier, end in self.owed.items()}

    def demote(self, process: Process) -> None:
        self.done["demote"] += 1
        process.leads = None
        for link in process.links:
            link.is_closed_by_master = True
        process.links = []

    # ------------------------------------------------------------------------------------------------------ the engine

    def perform(self) -> bool:
        """The engine does a request; also one whose caller has given up, or is dead."""
        waiting = [call for call in self.engine.calls if call.answer is None]
        if not waiting:
            return False
        call = self.one_of(waiting)
        self.engine.perform(call)
        if call.is_given_up:
            self.engine.calls.remove(call)
        return True

    def answer(self) -> bool:
        """An answer arrives."""
        waiting = [call for call in self.engine.calls if call.answer is not None and not call.is_given_up]
        if not waiting:
            return False
        call = self.one_of(waiting)
        self.engine.calls.remove(call)
        self.tell(call)
        return True

    def give_up(self) -> bool:
        """A caller does not get its answer. Its request may be on its way for long."""
        waiting = [call for call in self.engine.calls if not call.is_given_up]
        if not waiting:
            return False
        call = self.one_of(waiting)
        if call.answer is not None or self.random.random() < 0.2:
            self.engine.calls.remove(call)
        call.is_given_up = True
        process = call.caller
        assert isinstance(process, Process)
        if not is_up(process):
            return True
        if isinstance(call.request, effects.SwapState):
            self.done["unknown"] += 1
            self.obey(process, process.coordinator.on_swap(call.request, Outcome.UNKNOWN, 0, None, self.now))
        else:
            self.engine.calls.append(Call(process, call.request))
        return True

    def tell(self, call: Call) -> None:
        process, answer = call.caller, call.answer
        assert isinstance(process, Process)
        assert answer is not None
        if not is_up(process):
            return
        if isinstance(call.request, effects.SwapState):
            self.obey(
                process,
                process.coordinator.on_swap(call.request, answer.outcome, answer.revision, answer.state, self.now),
            )
        else:
            process.watched = max(process.watched, answer.revision)
            self.obey(process, process.coordinator.on_state(answer.revision, answer.state, self.now))

    def watch(self) -> bool:
        """The next state of the engine reaches a process that has read one."""
        process = self.some_process(lambda process: 0 <= process.watched < self.engine.revision)
        if process is None:
            return False
        process.watched += 1
        state = self.engine.history[process.watched - 1]
        self.obey(process, process.coordinator.on_state(process.watched, state, self.now))
        return True

    # --------------------------------------------------------------------------------------------------- replication

    def append(self) -> bool:
        """A producer sends a message to whom it takes for the master."""
        process = self.some_process(lambda process: process.leads is not None)
        if process is None:
            return False
        self._values += 1
        process.broker.records.append(self._values)
        self.confirm(process)
        return True

    def connect(self) -> bool:
        """A slave connects to whom it takes for the master."""
        process = self.some_process(
            lambda process: process.coordinator.phase is Phase.FOLLOWING and process.upstream is None
        )
        if process is None:
            return False
        state = process.coordinator.state
        assert state is not None
        master = self.brokers[state.master].process
        if master is None or not is_up(master):
            return False
        process.upstream = link = Link(process, master)
        self.links.append(link)
        link.up.append(Hello(process.broker.seen_epoch, process.broker.epochs, len(process.broker.records)))
        return True

    def close(self) -> bool:
        """A connection breaks, for each end at another moment."""
        if not self.links:
            return False
        link = self.one_of(self.links)
        if self.random.random() < 0.5:
            self.close_by_slave(link)
            link.down.clear()
        else:
            self.close_by_master(link)
            link.up.clear()
        return True

    def close_by_slave(self, link: Link) -> None:
        link.is_closed_by_slave = True
        if link.slave.upstream is link:
            link.slave.upstream = None

    def close_by_master(self, link: Link) -> None:
        link.is_closed_by_master = True
        if link in link.master.links:
            link.master.links.remove(link)

    def deliver(self) -> bool:
        """A message of a connection arrives, or the news that its other end is closed."""
        if not self.links:
            return False
        link = self.one_of(self.links)
        if self.random.random() < 0.5:
            if not link.is_closed_by_master and is_up(link.master):
                if link.up:
                    self.at_master(link, link.up.popleft())
                elif link.is_closed_by_slave:
                    self.close_by_master(link)
        elif not link.is_closed_by_slave and is_up(link.slave):
            if link.down:
                self.at_slave(link, link.down.popleft())
            elif link.is_closed_by_master:
                self.close_by_slave(link)
        if (link.is_closed_by_slave or not is_up(link.slave)) and (link.is_closed_by_master or not is_up(link.master)):
            self.links.remove(link)
        return True

    def at_master(self, link: Link, message: Hello | Ack) -> None:
        process = link.master
        if process.leads is None or (isinstance(message, Hello) and message.seen_epoch > process.leads.epoch):
            self.close_by_master(link)
        elif isinstance(message, Hello):
            for other in [other for other in process.links if other.slave.broker is link.slave.broker]:
                self.close_by_master(other)
            process.links.append(link)
            link.sent = 0
            process.acked.pop(link.slave.broker.me, None)
            link.down.append(Welcome(process.leads.epoch, process.broker.epochs, len(process.broker.records)))
        elif message.term == process.leads.epoch and link in process.links:
            process.acked[link.slave.broker.me] = message.end
            if not link.is_joined:
                link.is_joined = True
                link.sent = message.end
            self.confirm(process)

    def at_slave(self, link: Link, message: Welcome | Frame) -> None:
        process, broker = link.slave, link.slave.broker
        state = process.coordinator.state
        assert state is not None
        if process.upstream is not link or not self.accepts(message.term, state):
            self.close_by_slave(link)
            return
        if isinstance(message, Welcome):
            point = joins(broker, message, broker.me in state.isr)
            link.whole_at = message.end
            broker.cut(point, message.epochs)
            process.confirmed = min(process.confirmed, point)
            if self.random.random() < 0.1:
                self.done["killed in a cut"] += 1
                self.end(process)
                return
            if broker.cutting_to is not None:
                broker.finish_cut()
        else:
            if message.offset != len(broker.records):
                raise Violation(f"a frame for {message.offset} comes at {len(broker.records)}")
            broker.records.extend(message.records)
            broker.epochs = held_by(message.epochs, len(broker.records))
            process.confirmed = max(process.confirmed, min(message.confirmed, len(broker.records)))
            self.read(broker, process.confirmed, message.term)
        if self.is_whole(broker, link):
            broker.is_trusted = True
        link.up.append(Ack(message.term, len(broker.records)))

    def is_whole(self, broker: Broker, link: Link) -> bool:
        """Whether a broker that had lost something has all again that it ever acknowledged.

        Its master had that when it was asked, since it has sent it, or began its epoch with it.
        """
        return len(broker.records) >= link.whole_at

    def accepts(self, term: int, state: GroupState) -> bool:
        """Whether a slave that knows *state* takes what a master of *term* sends."""
        return term == state.epoch

    def send_records(self) -> bool:
        process = self.some_process(has_joined)
        if process is None or process.leads is None:
            return False
        link = self.one_of([link for link in process.links if link.is_joined])
        records = tuple(process.broker.records[link.sent : link.sent + int(self.random.random() * 5)])
        link.down.append(Frame(process.leads.epoch, link.sent, records, process.broker.epochs, process.confirmed))
        link.sent += len(records)
        return True

    # ------------------------------------------------------------------------------------------------- what must hold

    def confirm(self, process: Process) -> None:
        """Move what is confirmed: producers are told, and consumers read it."""
        process.confirm()
        if process.leads is not None:
            self.read(process.broker, process.confirmed, process.leads.epoch)

    def read(self, broker: Broker, end: int, epoch: int) -> None:
        """A broker that is of *epoch* lets everybody see its log up to *end*."""
        if epoch < self.forgiven:
            return
        known = min(end, len(self.acknowledged))
        if broker.records[:known] != self.acknowledged[:known]:
            raise Violation(f"broker {broker.me} shows another message at an offset that was read or acknowledged")
        self.acknowledged += broker.records[known:end]
        self.owed[epoch] = max(end, self.owed.get(epoch, 0))
