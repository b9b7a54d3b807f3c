"""The port of ``/metrics``, ``/healthz`` and ``/readyz``, beside the broker's event loop and not in it.

A thread with an event loop of its own has the port, so that a broker process that hangs can still be told of; another
makes the text of ``/metrics``. The broker's event loop is asked for what it alone knows, and answers in small pieces.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final, TypeVar

from mqcore.broker.metrics.broker_facts import BrokerFacts, Observed, gather_facts
from mqcore.broker.metrics.exposition import CONTENT_TYPE, Breath, render
from mqcore.broker.metrics.health import HealthVerdict, hangs, liveness, readiness
from mqcore.broker.metrics.http_end import HttpAnswer, HttpEnd
from mqcore.broker.metrics.survey import BrokerSurvey
from mqcore.broker.ports import wall_clock_ms
from mqcore.broker.side_port import open_side_port
from mqcore.config import Settings
from mqcore.transport.exposure import is_loopback

logger = logging.getLogger(__name__)

T = TypeVar("T")
Observe = Callable[[], Observed | None]

LOOP_S_MAX: Final = 5.0
"""An event loop that has not turned for so long hangs."""

STOP_S_MAX: Final = 10.0
JSON: Final = "application/json"


class MetricsEndpoint:
    """Serves one broker from ``start`` to ``stop``, over all its lives."""

    def __init__(self, settings: Settings, observe: Observe) -> None:
        """*observe* is called in the event loop that ``start`` is, and gives the broker's life of that moment.

        Raises ConfigError if the port cannot be had.
        """
        self._listener = open_side_port("metrics", settings.mqcore.metrics_host, settings.mqcore.metrics_port)
        self._observe = observe
        self._survey: tuple[Observed, BrokerSurvey] | None = None
        self._making: asyncio.Task[HttpAnswer] | None = None
        self._texts = ThreadPoolExecutor(1, "metrics-text")
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._broker_loop: asyncio.AbstractEventLoop | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port, *_ = self._listener.getsockname()
        return host, port

    async def start(self) -> None:
        self._broker_loop = asyncio.get_running_loop()
        self._thread.start()
        logger.info("metrics and health are served at %s:%d", *self.address)
        if not is_loopback(self.address[0]):
            logger.warning("metrics are shown to whoever reaches %s:%d: nobody is asked there who he is", *self.address)

    async def stop(self) -> None:
        """Close the port and end the threads."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            await asyncio.to_thread(self._thread.join, STOP_S_MAX)
        else:
            self._listener.close()
        self._texts.shutdown(wait=False)

    # In the thread.

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        end = HttpEnd(self._listener, {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz})
        await end.start()
        await self._stop.wait()
        await end.stop()

    async def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Have the broker's event loop answer. Raises TimeoutError if it does not."""
        assert self._broker_loop is not None
        answer = asyncio.run_coroutine_threadsafe(question, self._broker_loop)
        async with asyncio.timeout(LOOP_S_MAX):
            return await asyncio.wrap_future(answer)

    async def _healthz(self) -> HttpAnswer:
        try:
            return answer_of(await self._ask(self._live()))
        except TimeoutError:
            return answer_of(hangs(LOOP_S_MAX))

    async def _readyz(self) -> HttpAnswer:
        try:
            return answer_of(await self._ask(self._ready()))
        except TimeoutError:
            return answer_of(HealthVerdict("ready", hangs(LOOP_S_MAX).reasons, {}))

    async def _metrics(self) -> HttpAnswer:
        # Who asks while a text is being made is given that one.
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make())
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)

    def _made(self, task: asyncio.Task[HttpAnswer]) -> None:
        self._making = None

    async def _make(self) -> HttpAnswer:
        try:
            observed, facts, verdict = await self._ask(self._gather())
        except TimeoutError:
            return HttpAnswer.refusal(HTTPStatus.SERVICE_UNAVAILABLE, hangs(LOOP_S_MAX).reasons[0])
        if observed is None or facts is None:
            return HttpAnswer.refusal(HTTPStatus.SERVICE_UNAVAILABLE, verdict.reasons[0])
        text = await asyncio.get_running_loop().run_in_executor(
            self._texts, self._text, observed, facts, verdict.is_yes
        )
        return HttpAnswer(HTTPStatus.OK, text, CONTENT_TYPE)

    def _text(self, observed: Observed, facts: BrokerFacts, is_ready: bool) -> list[bytes]:
        pause = Breath()
        if self._survey is None or self._survey[0].broker is not observed.broker:
            self._survey = observed, BrokerSurvey(observed, pause)
        survey = self._survey[1]
        with collections_later():
            return render(survey.take(facts, is_ready=is_ready), survey.common_labels(), pause)

    # In the broker's event loop.

    async def _live(self) -> HealthVerdict:
        return liveness(self._observe(), wall_clock_ms())

    async def _ready(self) -> HealthVerdict:
        return readiness(self._observe())

    async def _gather(self) -> tuple[Observed | None, BrokerFacts | None, HealthVerdict]:
        observed = self._observe()
        facts = None if observed is None else await gather_facts(observed.broker)
        return observed, facts, readiness(observed)


@contextlib.contextmanager
def collections_later() -> Iterator[None]:
    """Have the collector of cycles rest within the block.

    It would walk the hundred thousand things of a survey, again and again as they become more, and nobody else has the
    interpreter meanwhile: 6 ms of CPU with 2,000 topics. None of them is in a cycle; they end with their last name.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def answer_of(verdict: HealthVerdict) -> HttpAnswer:
    """Return what a probe is told."""
    status = HTTPStatus.OK if verdict.is_yes else HTTPStatus.SERVICE_UNAVAILABLE
    return HttpAnswer(status, [json.dumps(verdict.as_json()).encode() + b"\n"], JSON)
