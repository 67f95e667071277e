"""What a custom decider returns: `autonomy.decider` in an agent's settings names the decider."""

from segue.core.autonomy.decide import Plan
from segue.runtime.planning import Decider, DeciderResult

__all__ = ["Decider", "DeciderResult", "Plan"]
