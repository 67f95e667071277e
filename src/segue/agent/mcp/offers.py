"""What an MCP server offers, as LangChain tools: names, descriptions and results within bounds.

A server is not trusted to be well-behaved: what no provider would take is left out here, so that
it cannot fail a model call.
"""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from mcp.types import (
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from segue.agent.middleware import tool_tokens
from segue.core.window import cut_text
from segue.settings.mcp import McpConfig

logger = logging.getLogger(__name__)

# What OpenAI, Anthropic and Google all take, the first character aside, which is the server's.
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 63
_LONGEST_DESCRIPTION: Final = 2_000
_MOST_TOKENS: Final = 2_000
_MOST_SHOWN: Final = 5

Call = Callable[[str, dict[str, Any]], Awaitable[CallToolResult]]


def tool_name(server: str, name: str) -> str:
    """Such as `files__read`; a name that is too long ends with a hash."""
    full = f"{server}__{_NOT_IN_NAMES.sub('_', name)}"
    if len(full) <= _LONGEST_NAME:
        return full
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{full[: _LONGEST_NAME - 9]}_{digest}"


def make_tools(
    server: str, offered: Sequence[Tool], config: McpConfig, call: Call
) -> tuple[BaseTool, ...]:
    """The tools that the config names, or all that can be offered; the log has the others."""
    allowed, made, flaws = frozenset(config.tools), dict[str, BaseTool](), dict[str, str]()
    if missing := sorted(allowed - {each.name for each in offered}):
        logger.warning("MCP server %s has no tool %s", server, ", ".join(missing))
    for each in offered:
        if allowed and each.name not in allowed:
            continue
        tool = _make_tool(server, each, call, config.result_chars)
        if flaw := "another has this name" if tool.name in made else _flaw(tool):
            flaws[each.name] = flaw
        else:
            made[tool.name] = tool
    if flaws:
        shown = "; ".join(f"{name:.60}, {flaw}" for name, flaw in [*flaws.items()][:_MOST_SHOWN])
        logger.warning("MCP server %s: %d tools are left out: %s", server, len(flaws), shown)
    return tuple(made.values())


def _make_tool(server: str, offered: Tool, call: Call, result_chars: int) -> BaseTool:
    async def run(**arguments: Any) -> str:
        result = await call(offered.name, arguments)
        text = text_of_result(result, result_chars)
        if result.isError:
            raise ToolException(text)  # LangChain makes it an error result
        return text

    return StructuredTool(
        name=tool_name(server, offered.name),
        description=cut_text(offered.description or offered.name, _LONGEST_DESCRIPTION),
        args_schema=offered.inputSchema,
        coroutine=run,
        handle_tool_error=True,
    )


def _flaw(tool: BaseTool) -> str | None:
    """Why a tool would fail each request that contains it; None if it would not."""
    schema = tool.args_schema
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its arguments are not an object"
    if not isinstance(schema.get("properties", {}), dict):
        return "its arguments have no names"
    try:
        tokens = tool_tokens(tool)
    except Exception as error:  # noqa: BLE001 - a schema may be anything
        return f"its schema cannot be read ({type(error).__name__})"
    return f"its schema takes {tokens} tokens" if tokens > _MOST_TOKENS else None


def text_of_result(result: CallToolResult, most: int) -> str:
    """The texts of a result. Pictures, sounds and files are named only: few models take them."""
    text = "\n".join(_texts(result.content))
    return cut_text(text, most) or "(It returned nothing.)"


def _texts(content: Iterable[ContentBlock]) -> Iterator[str]:
    for block in content:
        match block:
            case TextContent(text=text):
                yield text
            case EmbeddedResource(resource=TextResourceContents(text=text)):
                yield text
            case ResourceLink(uri=uri):
                yield f"[{uri}]"
            case EmbeddedResource():
                yield "[a file, left out]"
            case _:
                yield f"[{block.type}, left out]"
