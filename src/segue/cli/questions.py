"""Questions of agents to their users, as people read them: in a chat, and in a thread's history.

A question is stored with the turn that it ended, its answer with the turn that goes on; neither is
a message.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from segue.core.snowflake import parse, time_of

Json = Mapping[str, Any]


def question_text(question: Any) -> str:
    """A question as a person reads it; graphs ask with any value."""
    if not isinstance(question, Mapping):
        return question if isinstance(question, str) else json.dumps(question, default=str)
    found = (question.get(name) for name in ("question", "text", "message", "description"))
    text = next((each for each in found if isinstance(each, str) and each), None)
    choices = question.get("choices") or question.get("options") or ()
    if text is None:
        return json.dumps(dict(question), default=str, ensure_ascii=False)
    return f"{text} ({', '.join(map(str, choices))})" if choices else text


def with_questions(messages: Iterable[Json], turns: Iterable[Json]) -> list[Json]:
    """The messages of a history, oldest first, with the questions and answers of its turns between
    them; none from before the first message, which may belong to older ones.
    """
    left, merged = [*messages], list[Json]()
    for entry in _entries(left, sorted(turns, key=lambda turn: parse(turn["id"]))):
        while left and not _is_before(entry, left[0]):
            merged.append(left.pop(0))
        if merged:
            merged.append(entry)
    return merged + left


def _is_before(entry: Json, message: Json) -> bool:
    if message["created_at"] is None:  # imported
        return False
    mine, other = _moment(entry), _moment(message)
    # Within a millisecond, a question follows its message, and a reply follows the answer.
    return mine < other or (mine == other and entry["origin"] == "answer")


def _moment(entry: Json) -> datetime:
    moment = datetime.fromisoformat(entry["created_at"])
    return moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)


def _entries(messages: Iterable[Json], turns: Iterable[Json]) -> Iterator[Json]:
    names: dict[str, str] = {message["role"]: message["name"] for message in messages}
    for turn in turns:
        answer, ending = turn["payload"].get("answer"), turn["ending"] or {}
        if answer is not None:
            yield _entry(turn, "answer", names.get("user") or turn["user_id"], answer)
        if ending.get("kind") == "question":
            asked = ending.get("questions") or {}
            yield _entry(turn, "question", names.get("agent") or turn["agent_id"], asked)


def _entry(turn: Json, origin: str, name: str, said: Any) -> Json:
    """A question or an answer in the form of a message; several at once are several lines."""
    is_answer = origin == "answer"
    text = "\n".join(map(question_text, said.values() if isinstance(said, Mapping) else [said]))
    return {
        "id": turn["id"],
        "role": "user" if is_answer else "agent",
        "name": name,
        "text": text,
        "shown": text,
        "created_at": turn["queued_at"] if is_answer else _ended_at(turn),
        "origin": origin,
    }


def _ended_at(turn: Json) -> str:
    return time_of(parse(turn["end_position"])).isoformat()
