"""A chat with an agent through OpenAI's own client: `pip install openai`, and a running server.

    segue serve
    python examples/clients/openai_chat.py companion

The server keeps the history, so each request has only the new message and the name of the chat.
"""

import os
import sys

from openai import OpenAI, OpenAIError

ADDRESS = os.environ.get("SEGUE_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("SEGUE_KEY", "not-needed")


def main(agent: str = "companion", chat: str = "terminal") -> None:
    client = OpenAI(base_url=f"{ADDRESS}/v1", api_key=KEY)
    for text in sys.stdin:
        reply = client.chat.completions.create(
            model=agent,
            messages=[{"role": "user", "content": text.strip()}],
            stream=True,
            extra_headers={"Segue-Thread": chat},
        )
        for chunk in reply:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        print()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OpenAIError as error:
        sys.exit(f"{ADDRESS} does not reply: {error}")
