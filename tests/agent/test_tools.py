"""Tools that are made anew for each agent: one schema for all, and each its own function."""

import pytest
from langchain_core.tools import BaseTool

from segue.agent.tools import closure_tool

pytestmark = pytest.mark.anyio


def greeter(name: str) -> BaseTool:
    async def greet(text: str) -> str:
        return f"{text}, {name}!"

    greet.__doc__ = f"Greet {name}."
    return closure_tool(greet)


async def test_agents_share_the_schema_of_a_tool_and_not_its_function() -> None:
    """What a tool does and how it is described depends on its agent; its arguments do not."""
    made = [greeter("Ada"), greeter("Bob")]
    assert [await each.ainvoke({"text": "Hi"}) for each in made] == ["Hi, Ada!", "Hi, Bob!"]
    assert [each.description for each in made] == ["Greet Ada.", "Greet Bob."]
    assert made[0].args_schema is made[1].args_schema
