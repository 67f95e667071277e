"""Sends one message to an agent and prints all replies: `pip install langgraph-sdk==0.4.14`.

    segue serve
    python examples/clients/langgraph_chat.py "I want to learn the guitar."

It listens before it writes and stays open, so a follow-up appears by itself; Ctrl-C ends it.
"""

import argparse
import asyncio
import os
import sys

import httpx
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

ADDRESS = os.environ.get("SEGUE_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("SEGUE_KEY")


async def listen(client: LangGraphClient, thread_id: str) -> None:
    """Print the text of every run of the thread; a lost connection is resumed where it ended."""
    last = "-1"  # from the beginning
    while True:
        try:
            async for part in await client.threads.join_stream(thread_id, last_event_id=last):
                last = part.id or last
                if part.event == "metadata" and "origin" in part.data:
                    print(f"\n{part.data['origin']}: ", end="", flush=True)
                elif part.event == "messages":
                    print(part.data[0]["content"], end="", flush=True)
        except httpx.TransportError:
            await asyncio.sleep(1)


async def main(text: str, agent: str) -> None:
    async with get_client(url=ADDRESS, api_key=KEY) as client:
        thread = await client.threads.create()
        listening = asyncio.create_task(listen(client, thread["thread_id"]))
        said = {"messages": [{"role": "user", "content": text}]}
        await client.runs.create(thread["thread_id"], agent, input=said)
        await listening


if __name__ == "__main__":
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("text", help="your message")
    parser.add_argument("agent", help="the agent's id", nargs="?", default="companion")
    try:
        asyncio.run(main(**vars(parser.parse_args())))
    except KeyboardInterrupt:
        pass
    except httpx.TransportError as error:
        sys.exit(f"{ADDRESS} does not answer: {error}. Start the server with `segue serve`.")
    except httpx.HTTPError as error:
        sys.exit(f"{ADDRESS} refuses: {error}")
