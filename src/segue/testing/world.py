"""A whole Segue in a test: scripted models, overrides, and a virtual clock."""

from segue.agent.scripted import ScriptedChatModel
from segue.compose import Overrides
from segue.simulate.world import Stage, World, plain_agent

__all__ = ["Overrides", "ScriptedChatModel", "Stage", "World", "plain_agent"]
