"""Which cases a user asks for: by model, task, target, mode, dtype, check and a -k expression."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from harness.errors import UsageError
from harness.records import Case


def select(
    cases: Sequence[Case],
    *,
    models: Iterable[str] = (),
    tasks: Iterable[str] = (),
    targets: Iterable[str] = (),
    modes: Iterable[str] = (),
    dtypes: Iterable[str] = (),
    checks: Iterable[str] = (),
    keyword: str | None = None,
) -> tuple[Case, ...]:
    """Return the cases that all given options leave; an option that is not given leaves all.

    Raises UsageError for a name that no planned case has, for a malformed ``keyword``, and when options
    leave nothing: an empty run proves nothing.
    """
    options: list[tuple[str, set[str], Callable[[Case], str]]] = [
        ("model", set(models), lambda case: case.model),
        ("task", set(tasks), lambda case: case.task),
        ("target", set(targets), lambda case: case.target),
        ("mode", set(modes), lambda case: case.mode),
        ("dtype", set(dtypes), lambda case: case.dtype),
        ("check", set(checks), lambda case: case.check),
    ]
    left = list(cases)
    for option, wanted, of in options:
        known = {str(of(case)) for case in cases}
        for name in sorted(wanted - known):
            raise UsageError(unknown(option, name, known))
        left = [case for case in left if not wanted or of(case) in wanted]
    if keyword is not None and keyword.strip():
        matches = keyword_filter(keyword)
        left = [case for case in left if matches(f"[{case.id}]")]  # in the brackets of pytest's item
    if cases and not left:
        given = [f"--{option} {name}" for option, names, _ in options for name in sorted(names)]
        given += [f"-k {keyword!r}"] if keyword else []
        raise UsageError(f"no case matches {' '.join(given)}; `conformance list` shows what there is")
    return tuple(left)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return a sentence for a name that nothing has, with the nearest that something has."""
    names = sorted(str(one) for one in known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names[:20]) or 'none'}"
    return f"no {what} is called {name!r} in what is planned; {hint}"


def keyword_filter(expression: str) -> Callable[[str], bool]:
    """Return a test of case ids: ``and``, ``or``, ``not`` and parentheses over substrings, as pytest's -k.

    Substrings match in either case. Raises UsageError with the place of a mistake.
    """
    tokens = [(m.group(), m.start()) for m in re.finditer(r"[()]|[^\s()]+", expression)]
    if len(tokens) > 500:
        raise UsageError("-k: the expression is longer than 500 words; select by --model instead")
    return _Keyword(expression, tokens).parse()


class _Keyword:
    """Recursive descent over the words of a -k expression."""

    def __init__(self, text: str, tokens: list[tuple[str, int]]) -> None:
        self.text, self.tokens, self.at = text, tokens, 0

    def parse(self) -> Callable[[str], bool]:
        test = self._any()
        if self.at < len(self.tokens):
            raise self._error("'and', 'or' or the end")
        return test

    def _next(self) -> str | None:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else None

    def _accept(self, word: str) -> bool:
        found = self._next() == word
        self.at += found
        return found

    def _error(self, expected: str) -> UsageError:
        column = self.tokens[self.at][1] + 1 if self.at < len(self.tokens) else len(self.text) + 1
        return UsageError(f"-k {self.text!r}: expected {expected} at column {column}")

    def _any(self) -> Callable[[str], bool]:
        tests = [self._all()]
        while self._accept("or"):
            tests.append(self._all())
        return lambda name: any(test(name) for test in tests)

    def _all(self) -> Callable[[str], bool]:
        tests = [self._one()]
        while self._accept("and"):
            tests.append(self._one())
        return lambda name: all(test(name) for test in tests)

    def _one(self) -> Callable[[str], bool]:
        if self._accept("not"):
            inner = self._one()
            return lambda name: not inner(name)
        if self._accept("("):
            inner = self._any()
            if not self._accept(")"):
                raise self._error("')'")
            return inner
        word = self._next()
        if word is None or word in ("and", "or", ")"):
            raise self._error("a part of a case id, 'not' or '('")
        self.at += 1
        part = word.lower()
        return lambda name: part in name.lower()
