"""Prometheus metrics: requests, and the events of the runtime.

Labels are routes, agents, triggers, gates and outcomes, nothing of a user. docs/server.md lists
every metric; a test checks it.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from segue.errors import SegueError

Fields = Mapping[str, Any]

# Histogram buckets in seconds.
_DURATIONS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LATENESS: Final = (0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 3_600, 86_400)
# Counting stops here, because its cost grows with the number of timers.
_MOST_TIMERS: Final = 100_000
_CACHE_SECONDS: Final = 5.0

# Labels by the kind of event.
_STATES: Final = {
    "turn_done": "done",
    "turn_cancelled": "cancelled",
    "turn_failed": "failed",
    "follow_up_withdrawn": "void",
}
_BREAKS: Final = {
    "turn_retried": "model",
    "turn_broke_off": "database",
    "turn_given_up": "taken_away",
}
_FOLLOW_UPS: Final = {
    "follow_up_planned": "planned",
    "no_follow_up": "not_planned",
    "follow_up_fired": "fired",
    "follow_up_shown": "shown",
    "follow_up_withdrawn": "withdrawn",
}
_EFFECTS: Final = {"effect_done": "done", "effect_failed": "retried", "effect_dead": "dead"}


class Metrics:
    """The metrics of one app."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter(
            "segue_requests", "Finished requests", "route", "method", "status"
        )
        self._request_seconds = self._histogram(
            "segue_request_seconds", "Duration of requests", "route", "method"
        )
        self.sockets = Gauge("segue_sockets", "Open sockets", registry=self.registry)
        self._timers_fresh_until = -math.inf
        self._add_work()
        self._add_follow_ups()
        # By the kind of event; other events are only logged.
        self._observers: dict[str, list[Callable[[str, Fields], None]]] = {}
        self._add_observers()

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests.labels(route, method, str(status)).inc()
        self._request_seconds.labels(route, method).observe(seconds)

    def observe(self, kind: str, fields: Fields) -> None:
        """Count an event of the runtime."""
        for observer in self._observers.get(kind, ()):
            observer(kind, fields)

    async def count_timers(self, count: Callable[[int], Awaitable[int]]) -> None:
        """Update the number of pending timers, at most every five seconds."""
        now = time.monotonic()
        if now < self._timers_fresh_until:
            return
        self._timers_fresh_until = now + _CACHE_SECONDS
        try:
            self._timers.set(await count(_MOST_TIMERS))
        except SegueError:  # the other metrics are still needed
            self._timers.set(math.nan)

    def _add_work(self) -> None:
        """Turns, models, memories, effects."""
        self._turns = self._counter("segue_turns", "Finished turns", "agent", "origin", "state")
        self._turn_seconds = self._histogram(
            "segue_turn_seconds", "Time from acceptance to the end of a turn", "agent", "origin"
        )
        self._first_token_seconds = self._histogram(
            "segue_turn_first_token_seconds",
            "Time from acceptance to the first token, of finished turns",
            "agent",
            "origin",
        )
        self._breaks = self._counter(
            "segue_turn_breaks", "Attempts that ended before their turn", "agent", "cause"
        )
        self._settled = self._counter("segue_batches_settled", "Settled batches", "agent")
        self._model_calls = self._counter("segue_model_calls", "Model calls", "agent", "outcome")
        self._model_seconds = self._histogram(
            "segue_model_seconds", "Duration of model calls", "agent"
        )
        self._tokens = self._counter(
            "segue_model_tokens", "Tokens as the provider counts them", "agent", "direction"
        )
        self._queries = self._counter("segue_memory_queries", "Memory searches", "agent", "source")
        self._effects = self._counter(
            "segue_effects", "Attempts of effects", "agent", "kind", "outcome"
        )

    def _add_follow_ups(self) -> None:
        """Timers, gates, follow-ups."""
        self._timers = Gauge(
            "segue_timers_pending", f"Pending timers, up to {_MOST_TIMERS}", registry=self.registry
        )
        self._lateness = self._histogram(
            "segue_timer_lateness_seconds", "Delay of timers", buckets=_LATENESS
        )
        self._verdicts = self._counter(
            "segue_gate_verdicts", "Verdicts of the gates", "gate", "outcome"
        )
        self._follow_ups = self._counter(
            "segue_follow_ups", "Steps of follow-ups", "agent", "trigger", "outcome"
        )

    def _add_observers(self) -> None:
        for kind in _STATES:
            self._on(kind, self._turn_over)
        for kind in _BREAKS:
            self._on(kind, lambda k, f: self._breaks.labels(_agent(f), _BREAKS[k]).inc())
        for kind in _FOLLOW_UPS:
            self._on(kind, lambda k, f: self._follow_up(f, _FOLLOW_UPS[k]))
        for kind in _EFFECTS:
            self._on(kind, self._effect)
        self._on("turn_done", self._turn_done)
        self._on("turn_failed", self._turn_failed)
        self._on("batch_settled", lambda _, f: self._settled.labels(_agent(f)).inc())
        self._on("follow_up_held_back", lambda _, f: self._follow_up(f, f["outcome"]))
        self._on("follow_up_voided", self._voided)
        self._on("gate_asked", lambda _, f: self._verdicts.labels(f["gate"], f["outcome"]).inc())
        self._on("timer_due", lambda _, f: self._lateness.observe(f["seconds"]))
        self._on("memory_asked", lambda _, f: self._queries.labels(_agent(f), f["source"]).inc())
        self._on("model_called", self._model_called)

    def _on(self, kind: str, observer: Callable[[str, Fields], None]) -> None:
        self._observers.setdefault(kind, []).append(observer)

    def _turn_over(self, kind: str, fields: Fields) -> None:
        state = "waiting" if fields.get("is_waiting") else _STATES[kind]
        self._turns.labels(_agent(fields), fields["turn_kind"], state).inc()

    def _turn_done(self, _: str, fields: Fields) -> None:
        labels = _agent(fields), fields["turn_kind"]
        self._turn_seconds.labels(*labels).observe(fields["seconds"])
        if (seconds := fields["first_token_seconds"]) is not None:
            self._first_token_seconds.labels(*labels).observe(seconds)

    def _turn_failed(self, _: str, fields: Fields) -> None:
        if fields["turn_kind"] == "follow_up":
            self._follow_up(fields, "failed")

    def _voided(self, _: str, fields: Fields) -> None:
        """The user wrote: pending timers and running turns become void."""
        turns = len(fields["turns"])
        self._turns.labels(_agent(fields), "follow_up", "void").inc(turns)
        self._follow_up(fields, "void", turns + len(fields["timers"]))

    def _follow_up(self, fields: Fields, outcome: str, count: int = 1) -> None:
        trigger = str(fields.get("trigger_type") or "unknown")
        self._follow_ups.labels(_agent(fields), trigger, outcome).inc(count)

    def _effect(self, kind: str, fields: Fields) -> None:
        self._effects.labels(_agent(fields), fields["effect_kind"], _EFFECTS[kind]).inc()

    def _model_called(self, _: str, fields: Fields) -> None:
        agent = _agent(fields)
        self._model_calls.labels(agent, fields["outcome"]).inc()
        self._model_seconds.labels(agent).observe(fields["seconds"])
        for direction in ("input", "output"):
            self._tokens.labels(agent, direction).inc(fields[f"{direction}_tokens"])

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def _histogram(
        self, name: str, meaning: str, *labels: str, buckets: tuple[float, ...] = _DURATIONS
    ) -> Histogram:
        return Histogram(name, meaning, labels, buckets=buckets, registry=self.registry)


def _agent(fields: Fields) -> str:
    return str(fields.get("agent_id") or "unknown")
