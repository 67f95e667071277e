"""HTTP requests to a Segue server; its error responses become Segue's own errors."""

from collections.abc import Mapping
from typing import Any, Final

import httpx

from segue.errors import BackendError, ConflictError, DeniedError, NotFoundError, UsageError

USER_HEADER: Final = "Segue-User"
# Reading may take longer than the pause between two pings of the server.
TIMEOUT: Final = httpx.Timeout(10.0, read=60.0)
_ERRORS: Final = {
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    409: ConflictError,
    400: UsageError,
    422: UsageError,
}


class ServerUnavailable(BackendError):
    """The server does not answer now; a retry may help."""


def open_client(url: str, key: str | None, user: str | None) -> httpx.AsyncClient:
    """A client that sends the key and the user with each request."""
    headers = {} if key is None else {b"Authorization": f"Bearer {key}".encode()}
    if user is not None:
        headers[USER_HEADER.encode()] = user.encode()
    return httpx.AsyncClient(base_url=url.rstrip("/"), headers=headers)


async def call(
    client: httpx.AsyncClient,
    method: str,
    path: str,
    body: Any = None,
    params: Mapping[str, Any] | None = None,
) -> Any:
    """The JSON of a response; None if it has no body."""
    try:
        response = await client.request(method, path, json=body, params=params, timeout=TIMEOUT)
    except httpx.TransportError as error:
        raise unavailable(client, error) from None
    await check(response)
    try:
        return response.json() if response.content else None
    except ValueError:  # such as the page of another server
        raise BackendError(f"{response.url} answers without JSON; is it a Segue server?") from None


async def check(response: httpx.Response) -> None:
    """Raise the error that the server responds with, if any."""
    if response.is_success:
        return
    await response.aread()
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"{response.request.url} answers {response.status_code}; is it a Segue server?"
    if response.status_code == 503:
        raise ServerUnavailable(detail)
    hint = " Give a key with --key." if response.status_code == 401 else ""
    raise _ERRORS.get(response.status_code, BackendError)(f"{detail}{hint}")


def unavailable(client: httpx.AsyncClient, error: httpx.TransportError) -> ServerUnavailable:
    reason = str(error).rstrip(".") or type(error).__name__
    return ServerUnavailable(f"{client.base_url} does not answer: {reason}.")
