"""When an agent may speak first, as plain functions: for programs with a scheduler of their own.

`judge` reads what a reply left open and plans a follow-up, `next_delay` says when it is due,
`PolicyGates.check` whether it may be sent then, and `parse_schedule` when a reminder comes. Times
come in as arguments, and nothing is stored. `examples/own_scheduler.py` uses all of it.
"""

from segue.core.autonomy.decide import Delays, Plan, Sign, judge
from segue.core.autonomy.gates import Gate, GateDecision, GateOutcome, PolicyGates
from segue.core.autonomy.local_time import QuietHours
from segue.core.autonomy.policy import Facts, Policy, next_delay
from segue.core.autonomy.requests import apply_request
from segue.core.autonomy.schedule import Schedule, parse_schedule
from segue.core.speech.stops import read_request

__all__ = [
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
