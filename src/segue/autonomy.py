"""When an agent may speak first: plain functions for your own scheduler, types for deciders.

`judge` finds what a reply left open and plans a follow-up, `next_delay` computes when it is due,
`PolicyGates.check` decides whether it may be sent then, and `parse_schedule` computes the times of
a reminder. Times are arguments, and nothing is stored. `examples/own_scheduler.py` uses all of it.
A custom `Decider` returns a `Plan` or a `DeciderResult`.
"""

from segue.core.autonomy.decide import Delays, Plan, Sign, judge
from segue.core.autonomy.gates import Gate, GateDecision, GateOutcome, PolicyGates
from segue.core.autonomy.local_time import QuietHours
from segue.core.autonomy.policy import Facts, Policy, apply_request, next_delay
from segue.core.autonomy.schedule import Schedule, parse_schedule
from segue.core.speech.stops import read_request
from segue.runtime.planning import Decider, DeciderResult

__all__ = [
    "Decider",
    "DeciderResult",
    "Delays",
    "Facts",
    "Gate",
    "GateDecision",
    "GateOutcome",
    "Plan",
    "Policy",
    "PolicyGates",
    "QuietHours",
    "Schedule",
    "Sign",
    "apply_request",
    "judge",
    "next_delay",
    "parse_schedule",
    "read_request",
]
