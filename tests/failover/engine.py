"""The engine of the model: one value under compare-and-swap, with requests and answers that are late or lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqcore.broker.failover.coordinator import Outcome
from mqcore.broker.failover.effects import ReadState, SwapState
from mqcore.broker.failover.group_state import GroupState

Request = ReadState | SwapState


@dataclass(frozen=True, slots=True)
class Answer:
    """What a process is told. *revision* and *state* are of the moment at which the request was done."""

    outcome: Outcome
    revision: int
    state: GroupState | None


@dataclass(eq=False, slots=True)
class Call:
    """A request of the process *caller*. Done or not, its answer may be lost, and it may be done after that."""

    caller: object
    request: Request
    answer: Answer | None = None
    is_given_up: bool = False


@dataclass(slots=True)
class Engine:
    """``history[r - 1]`` is the state with revision r."""

    history: list[GroupState] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def revision(self) -> int:
        return len(self.history)

    @property
    def state(self) -> GroupState | None:
        return self.history[-1] if self.history else None

    def perform(self, call: Call) -> None:
        """Do what is asked, at one moment."""
        outcome = Outcome.DONE
        if isinstance(call.request, SwapState):
            if call.request.expected == self.revision:
                self.history.append(call.request.state)
            else:
                outcome = Outcome.REFUSED
        call.answer = Answer(outcome, self.revision, self.state)
