"""What the server counts, for Prometheus: requests, and what the runtime tells of its work.

Labels are few and of fixed words: routes, agents, triggers, gates, outcomes. Nothing of a user.
docs/server.md lists every metric; a test holds it to that.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from segue.core.errors import SegueError

Fields = Mapping[str, Any]

# From what a cached answer takes to what a person still waits for.
_MOMENTS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LATENESS: Final = (0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 3_600, 86_400)
# More timers than this are told as so many: counting costs the more, the more there are.
_MOST_TIMERS: Final = 100_000
_BELIEVED_SECONDS: Final = 5.0

# What becomes of a turn, by what is noted at its end.
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
    """The numbers of one app."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter(
            "segue_requests", "Requests that are over", "route", "method", "status"
        )
        self._request_seconds = self._histogram(
            "segue_request_seconds", "How long requests took", _MOMENTS, "route", "method"
        )
        self.sockets = Gauge("segue_sockets", "Sockets that are open", registry=self.registry)
        self._timers_known_until = -math.inf
        self._count_work()
        self._count_initiative()
        # What is told, by its kind; what is not here is for the log alone.
        self._observers: dict[str, list[Callable[[str, Fields], None]]] = {}
        self._listen()

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests.labels(route, method, str(status)).inc()
        self._request_seconds.labels(route, method).observe(seconds)

    def observe(self, kind: str, fields: Fields) -> None:
        """Count something that the runtime tells."""
        for observer in self._observers.get(kind, ()):
            observer(kind, fields)

    async def count_timers(self, counted: Callable[[int], Awaitable[int]]) -> None:
        """Look how many timers wait, unless that was just done."""
        now = time.monotonic()
        if now < self._timers_known_until:
            return
        self._timers_known_until = now + _BELIEVED_SECONDS
        try:
            self._timers.set(await counted(_MOST_TIMERS))
        except SegueError:  # the other numbers are all the more wanted
            self._timers.set(math.nan)

    def _count_work(self) -> None:
        """Turns, models, memories, effects."""
        self._turns = self._counter(
            "segue_turns", "Turns that are over, by their end", "agent", "origin", "state"
        )
        self._turn_seconds = self._histogram(
            "segue_turn_seconds", "From accepted to done", _MOMENTS, "agent", "origin"
        )
        self._first_token_seconds = self._histogram(
            "segue_turn_first_token_seconds",
            "From accepted to the first token, of turns that were done",
            _MOMENTS,
            "agent",
            "origin",
        )
        self._breaks = self._counter(
            "segue_turn_breaks", "Tries that ended before their turn, by cause", "agent", "cause"
        )
        self._settled = self._counter(
            "segue_batches_settled", "Batches that were closed for their agent", "agent"
        )
        self._model_calls = self._counter(
            "segue_model_calls", "Model calls, by outcome", "agent", "outcome"
        )
        self._model_seconds = self._histogram(
            "segue_model_seconds", "How long model calls took", _MOMENTS, "agent"
        )
        self._tokens = self._counter(
            "segue_model_tokens", "Tokens as the model counts them", "agent", "direction"
        )
        self._queries = self._counter(
            "segue_memory_queries", "Searches for memories, by whose words", "agent", "source"
        )
        self._effects = self._counter(
            "segue_effects", "Tries of what is done outside", "agent", "kind", "outcome"
        )

    def _count_initiative(self) -> None:
        """Timers, gates, follow-ups."""
        self._timers = Gauge(
            "segue_timers_pending",
            f"Timers that wait, up to {_MOST_TIMERS}",
            registry=self.registry,
        )
        self._lateness = self._histogram(
            "segue_timer_lateness_seconds", "How late timers were looked at", _LATENESS
        )
        self._verdicts = self._counter(
            "segue_gate_verdicts", "What the gates said, one verdict of each", "gate", "outcome"
        )
        self._follow_ups = self._counter(
            "segue_follow_ups", "Steps of follow-ups", "agent", "trigger", "outcome"
        )

    def _listen(self) -> None:
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
        """The user wrote: of a timer that was still waiting, or a turn that was at work already."""
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
        self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(name, meaning, labels, buckets=buckets, registry=self.registry)


def _agent(fields: Fields) -> str:
    return str(fields.get("agent_id") or "unknown")
