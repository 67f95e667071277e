"""Prometheus metrics: requests, and the events of the runtime.

Labels are routes, agents, triggers, gates and outcomes, nothing of a user. docs/server.md lists
every metric; a test checks it.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
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
        registry, name = self.registry, "segue"
        counter = partial(Counter, namespace=name, registry=registry)
        gauge = partial(Gauge, namespace=name, registry=registry)
        histogram = partial(
            Histogram, namespace=name, registry=registry, unit="seconds", buckets=_DURATIONS
        )
        origin, outcome = ("agent", "origin"), ("agent", "outcome")
        self._requests = counter("requests", "Finished requests", ("route", "method", "status"))
        self._request_seconds = histogram("request", "Duration of requests", ("route", "method"))
        self.sockets = gauge("sockets", "Open sockets")
        self._turns = counter("turns", "Finished turns", (*origin, "state"))
        self._turn_seconds = histogram("turn", "Time from acceptance to the end of a turn", origin)
        until_shown = "Time from acceptance to the first token, of finished turns"
        self._first_token_seconds = histogram("turn_first_token", until_shown, origin)
        breaks = "Attempts that ended before their turn"
        self._breaks = counter("turn_breaks", breaks, ("agent", "cause"))
        self._settled = counter("batches_settled", "Settled batches", ("agent",))
        self._model_calls = counter("model_calls", "Model calls", outcome)
        self._model_seconds = histogram("model", "Duration of model calls", ("agent",))
        tokens = "Tokens as the provider counts them"
        self._tokens = counter("model_tokens", tokens, ("agent", "direction"))
        self._queries = counter("memory_queries", "Memory searches", ("agent", "source"))
        promises = "Reminders that a reply promised without setting one"
        self._promises = counter("promises", promises, outcome)
        self._effects = counter("effects", "Attempts of effects", ("agent", "kind", "outcome"))
        self._timers = gauge("timers_pending", f"Pending timers, up to {_MOST_TIMERS}")
        self._timers_fresh_until = -math.inf
        self._lateness = histogram("timer_lateness", "Delay of timers", buckets=_LATENESS)
        self._verdicts = counter("gate_verdicts", "Verdicts of the gates", ("gate", "outcome"))
        steps = ("agent", "trigger", "outcome")
        self._follow_ups = counter("follow_ups", "Steps of follow-ups", steps)

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests.labels(route, method, str(status)).inc()
        self._request_seconds.labels(route, method).observe(seconds)

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

    def observe(self, kind: str, fields: Fields) -> None:
        """Count an event of the runtime; events without a metric are only logged."""
        agent = str(fields.get("agent_id") or "unknown")
        if kind in _STATES:
            self._turn_over(kind, agent, fields)
        if kind in _BREAKS:
            self._breaks.labels(agent, _BREAKS[kind]).inc()
        if kind in _FOLLOW_UPS:
            self._follow_up(agent, fields, _FOLLOW_UPS[kind])
        if kind in _EFFECTS:
            self._effects.labels(agent, fields["effect_kind"], _EFFECTS[kind]).inc()
        self._observe_other(kind, agent, fields)

    def _observe_other(self, kind: str, agent: str, fields: Fields) -> None:
        match kind:
            case "batch_settled":
                self._settled.labels(agent).inc()
            case "follow_up_held_back":
                self._follow_up(agent, fields, fields["outcome"])
            case "follow_up_voided":  # the user wrote
                turns = len(fields["turns"])
                self._turns.labels(agent, "follow_up", "void").inc(turns)
                self._follow_up(agent, fields, "void", turns + len(fields["timers"]))
            case "gate_asked":
                self._verdicts.labels(fields["gate"], fields["outcome"]).inc()
            case "timer_due":
                self._lateness.observe(fields["seconds"])
            case "promise_noticed":
                self._promises.labels(agent, fields["outcome"]).inc()
            case "memory_asked":
                self._queries.labels(agent, fields["source"]).inc()
            case "model_called":
                self._model_called(agent, fields)

    def _turn_over(self, kind: str, agent: str, fields: Fields) -> None:
        origin = fields["turn_kind"]
        state = "waiting" if fields.get("is_waiting") else _STATES[kind]
        self._turns.labels(agent, origin, state).inc()
        if kind == "turn_done":
            self._turn_seconds.labels(agent, origin).observe(fields["seconds"])
            if (seconds := fields["first_token_seconds"]) is not None:
                self._first_token_seconds.labels(agent, origin).observe(seconds)
        if kind == "turn_failed" and origin == "follow_up":
            self._follow_up(agent, fields, "failed")

    def _follow_up(self, agent: str, fields: Fields, outcome: str, count: int = 1) -> None:
        trigger = str(fields.get("trigger_type") or "unknown")
        self._follow_ups.labels(agent, trigger, outcome).inc(count)

    def _model_called(self, agent: str, fields: Fields) -> None:
        self._model_calls.labels(agent, fields["outcome"]).inc()
        self._model_seconds.labels(agent).observe(fields["seconds"])
        for direction in ("input", "output"):
            self._tokens.labels(agent, direction).inc(fields[f"{direction}_tokens"])
