"""Models for tests: one that says what its script says, and sees what a model would see."""

from segue.agent.demo import demo_reply
from segue.agent.scripted import ScriptedChatModel

__all__ = ["ScriptedChatModel", "demo_reply"]
