"""A server over HTTP, as commands call it; what it refuses is raised in its own words."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from segue.core.errors import BackendError, ConflictError, DeniedError, NotFoundError, UsageError

USER_HEADER: Final = "Segue-User"
# Longer than the server's signs of life are apart.
TIMEOUT: Final = httpx.Timeout(10.0, read=60.0)
_ERRORS: Final = {
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    409: ConflictError,
    400: UsageError,
    422: UsageError,
}


class Away(BackendError):
    """The server does not answer right now; it may soon."""


@asynccontextmanager
async def client_of(
    url: str, key: str | None, user: str | None
) -> AsyncIterator[httpx.AsyncClient]:
    """A client that says who it is with each request."""
    headers = {} if key is None else {b"Authorization": f"Bearer {key}".encode()}
    if user is not None:
        headers[USER_HEADER.encode()] = user.encode()
    async with httpx.AsyncClient(base_url=url.rstrip("/"), headers=headers) as client:
        yield client


async def call(
    client: httpx.AsyncClient,
    method: str,
    path: str,
    body: Any = None,
    params: Mapping[str, Any] | None = None,
) -> Any:
    try:
        response = await client.request(method, path, json=body, params=params, timeout=TIMEOUT)
    except httpx.TransportError as error:
        raise away(client, error) from None
    await check(response)
    return response.json() if response.content else None


async def check(response: httpx.Response) -> None:
    """Raise what the server refuses in its own words."""
    if response.is_success:
        return
    await response.aread()
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"{response.request.url} answers {response.status_code}; is it a Segue server?"
    if response.status_code == 503:
        raise Away(detail)
    hint = " Give a key with --key." if response.status_code == 401 else ""
    raise _ERRORS.get(response.status_code, BackendError)(f"{detail}{hint}")


def away(client: httpx.AsyncClient, error: httpx.TransportError) -> Away:
    why = str(error).rstrip(".") or type(error).__name__
    return Away(f"{client.base_url} does not answer: {why}.")
