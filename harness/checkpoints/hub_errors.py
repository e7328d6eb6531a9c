"""Tells the Hub's refusals apart, as far as it lets one, and repeats what may pass.

Behaviour of huggingface_hub 2.4.0: a 503 on a file and a reset during HEAD are not repeated, and
transport errors of its HTTP client reach the caller as they are.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx2
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    NotASafetensorsRepoError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SafetensorsParsingError,
)

from harness.checkpoints.scrub import one_line, scrub
from harness.errors import CheckpointError, NoRoomError
from harness.records import OutcomeKind

PAUSES = (1.0, 2.0, 4.0)
"""Seconds before the attempts after the first. The client repeats most requests itself, inside each attempt."""
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses that say nothing about the checkpoint."""

Result = TypeVar("Result")


class Unreachable(ConnectionError):  # noqa: N818 (a state of the network, named as such)
    """No connection to the endpoint: no use to ask for the next row."""


def patiently(action: Callable[[], Result], *, pauses: tuple[float, ...] = PAUSES) -> Result:
    """Return what ACTION returns, repeated after a fault that may pass."""
    for pause in pauses:
        try:
            return action()
        except (OSError, httpx2.HTTPError, AttributeError) as error:
            if not _may_pass(error):
                raise
        time.sleep(pause)
    return action()


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, HfHubHTTPError):
        return error.response is not None and error.response.status_code in PASSING
    if isinstance(error, AttributeError):
        # The client closes its session in one thread while another reads it.
        return "'NoneType' object has no attribute" in str(error)
    if isinstance(error, LocalEntryNotFoundError):
        return True
    return isinstance(error, httpx2.TransportError) or (isinstance(error, OSError) and error.errno is None)


def classify(error: BaseException, origin: str, token: str | None) -> dict[str, Any]:
    """Return kind, message, whether the endpoint is out of reach and whether room was short, without any secret."""
    if isinstance(error, CheckpointError):
        kind, text = error.kind, str(error).removeprefix(f"{origin}: ")
    else:
        kind, text = _judge(error, has_token=token is not None)
    return {
        "kind": str(kind),
        "message": scrub(one_line(text, 900), token),
        "unreachable": isinstance(error, Unreachable),
        "no_room": isinstance(error, NoRoomError),
    }


def _judge(error: BaseException, *, has_token: bool) -> tuple[OutcomeKind, str]:
    status = _status(error)
    words = one_line(str(error), 300)
    if isinstance(error, GatedRepoError):  # before its parent class, RepositoryNotFoundError
        need = (
            "its token is not on the list: ask for access on the model's page"
            if status == 403
            else ("accept its terms on the model's page and set HF_TOKEN")
        )
        return OutcomeKind.GATED, f"the repository is gated and {need}"
    if isinstance(error, RepositoryNotFoundError):
        if has_token:
            return OutcomeKind.INVALID_CHECKPOINT, "the repository is missing, or private and this token may not see it"
        return OutcomeKind.GATED, "the repository is missing, or private and no valid token is set (HF_TOKEN)"
    if isinstance(error, RevisionNotFoundError):
        return OutcomeKind.INVALID_CHECKPOINT, "the repository has no such commit; correct 'revision' in the row"
    if isinstance(error, RemoteEntryNotFoundError):
        return OutcomeKind.INVALID_CHECKPOINT, f"a listed file is not there: {words}"
    if status == 401:
        return OutcomeKind.GATED, "the Hub refuses the token (HF_TOKEN): it is wrong or has expired"
    if status == 403:
        return OutcomeKind.GATED, f"the Hub forbids access: {words}"
    if isinstance(error, HFValidationError | NotASafetensorsRepoError | SafetensorsParsingError):
        return OutcomeKind.INVALID_CHECKPOINT, words
    return OutcomeKind.UNAVAILABLE, _infrastructure(error, words)


def _infrastructure(error: BaseException, words: str) -> str:
    if isinstance(error, Unreachable):
        return f"{words}; check the network and HF_ENDPOINT, or use offline mode with a filled cache"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left for the Hugging Face cache ({words}); free space or move HF_HOME"
    return f"the Hub did not deliver: {type(error).__name__}: {words}"


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    status: int | None = getattr(response, "status_code", None)
    return status
