import pytest

from harness.checkpoints.scrub import one_line, scrub


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("401 for hf_abcDEF123 at", "401 for hf_*** at"),
        ("Authorization: Bearer abcdef.ghi", "Authorization: *** ***"),
        ("proxy-AUTHORIZATION=bAsIc dXNlcjpwdw==", "proxy-AUTHORIZATION=*** ***"),
        ("{'authorization': 'abcdefg'}", "{'authorization': ***'}"),
        ("https://user:pass@index.example/simple", "https://index.example/simple"),
        ("GET https://cdn.example/x?X-Signature=abc&y=1 failed", "GET https://cdn.example/x?*** failed"),
        ("a plain message: 503, at 10:20", "a plain message: 503, at 10:20"),
    ],
)
def test_secrets_go_and_the_rest_stays(text: str, clean: str) -> None:
    assert scrub(text) == clean


def test_a_known_secret_goes_whatever_it_looks_like() -> None:
    assert scrub("token my-odd-token refused", "my-odd-token") == "token *** refused"


def test_one_line_is_bounded() -> None:
    assert one_line(" a\n  b\t c ") == "a b c"
    assert one_line("abcdef", 4) == "abc…"
