"""What the server counts, for Prometheus: requests, and what the runtime notes of its work.

Labels are few and of fixed words: routes, triggers, gates, outcomes. Nothing of a user.
"""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_MOMENTS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """The numbers of one app."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "segue_requests",
            "Requests that are over",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "segue_request_seconds",
            "How long requests took",
            ["route", "method"],
            buckets=_MOMENTS,
            registry=self.registry,
        )
        self.sockets = Gauge("segue_sockets", "Sockets that are open", registry=self.registry)
        self._events = Counter(
            "segue_events",
            "What the runtime noted of its work",
            ["kind", "agent_id", "outcome"],
            registry=self.registry,
        )

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests.labels(route, method, str(status)).inc()
        self._request_seconds.labels(route, method).observe(seconds)

    def observe(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Count something that the runtime notes."""
        agent = str(fields.get("agent_id", ""))
        self._events.labels(kind, agent, str(fields.get("outcome", ""))).inc()
