from __future__ import annotations

import errno
from collections.abc import Callable

import httpx2
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from harness.checkpoints.hub_errors import Unreachable, classify, patiently
from harness.errors import CheckpointError, NoRoomError


def answer(status: int) -> HfHubHTTPError:
    request = httpx2.Request("GET", "https://hub.example/x")
    return HfHubHTTPError(f"{status} for hf_abcdefgh", response=httpx2.Response(status, request=request))


def failing(*errors: BaseException) -> Callable[[], int]:
    """Return an action that raises the errors in turn and then gives the number of calls."""
    rest = list(errors)

    def action() -> int:
        if rest:
            raise rest.pop(0)
        return len(errors) + 1

    return action


PASSING = [
    answer(503),
    answer(429),
    httpx2.RemoteProtocolError("peer closed"),
    httpx2.ReadTimeout("slow"),
    LocalEntryNotFoundError("could not reach the Hub"),
    OSError("Consistency check failed"),
    AttributeError("'NoneType' object has no attribute 'request'"),
]
LASTING = [
    answer(404),
    answer(401),
    OSError(errno.ENOSPC, "No space left on device"),
    AttributeError("'HfApi' object has no attribute 'list_repo_tree'"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_is_tried_again_within_limits(error: BaseException) -> None:
    assert patiently(failing(error, error), pauses=(0, 0)) == 3
    with pytest.raises(type(error)):
        patiently(failing(error, error, error), pauses=(0, 0))


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_lasts_is_not(error: BaseException) -> None:
    with pytest.raises(type(error)):
        patiently(failing(error), pauses=(0, 0))


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (Unreachable("no route"), "unavailable", "check the network and HF_ENDPOINT"),
        (OSError(errno.ENOSPC, "No space left on device"), "unavailable", "no space left for the Hugging Face cache"),
        (answer(503), "unavailable", "the Hub did not deliver: HfHubHTTPError: 503 for hf_***"),
        (answer(401), "gated", "the Hub refuses the token"),
        (answer(403), "gated", "the Hub forbids access"),
        (httpx2.RemoteProtocolError("secret-token\nclosed"), "unavailable", "RemoteProtocolError: *** closed"),
        (CheckpointError("hub:a/b: corrupt", "invalid_checkpoint"), "invalid_checkpoint", "corrupt"),
        (NoRoomError("no room for 1 MB", "unavailable"), "unavailable", "no room for 1 MB"),
    ],
    ids=repr,
)
def test_kinds_and_words(error: BaseException, kind: str, words: str) -> None:
    found = classify(error, "hub:a/b", "secret-token")
    assert (found["kind"], words in found["message"]) == (kind, True), found
    assert found["unreachable"] == isinstance(error, Unreachable)
    assert found["no_room"] == isinstance(error, NoRoomError)
    assert not found["message"].startswith("hub:a/b")
