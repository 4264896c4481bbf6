"""The plays of Shakespeare by speaking role: predict the next character from the 80 before it.

The text is Project Gutenberg's eBook 100 in the World Library edition, cut up by LEAF's rules
(Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097):

- the line "by William Shakespeare" opens a play, whose title is the nearest line with text that
  stands two to seven lines above it;
- ``  NAME. text`` begins a speech, lines indented by four continue it, and the same name in
  any case is the same role of that play. THE COMEDY OF ERRORS is not indented in this edition:
  there every line continues the speech until one that begins with "<", and names that begin
  with "ACT " are headings;
- a work with fewer than two roles is not a play, and a role with at most two lines is dropped;
- a role's lines are joined by blanks, runs of blanks become one, and every 80 characters that
  are followed by another make a sample.

That gives 1,129 roles and 4,226,158 samples, as LEAF states. The paper uses the 143 roles of
FedProx (Li et al., arXiv:1812.06127: 517,106 samples), whose list is not published; here 143 are
drawn among the roles with at least 64 samples, with a seed that was chosen by the statistics that
FedProx publishes (``FEDPROX_SEED`` is nearer to them than the default ``DRAW_SEED``).
Departs from LEAF in: the first 80 % of a role's samples train and the rest test, without LEAF's
gap between them, so the first 80 test samples of a role share characters with its training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anarchic.data.dataset import Dataset, Folder
from anarchic.data.files import damaged, find, read
from anarchic.errors import ConfigError

WINDOW = 80
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 characters; a token is a position in it."""

DRAW_SEED = 885
"""Of the seeds up to 999, one whose draw is near FedProx's total (516,505 samples) and whose
standard deviation (6,109 samples per role) is near that of all roles."""

FEDPROX_SEED = 69_053
"""Of the seeds up to 99,999, the one whose draw is nearest to both of FedProx's numbers: 517,192
samples (517,106), with a standard deviation of 6,820 samples per role (6,808). It was chosen by
these alone, as the smallest sum of the two relative differences. The default stays ``DRAW_SEED``,
so that earlier results can be repeated; ``data_options={"seed": FEDPROX_SEED}`` takes this one."""

_LEAST_WINDOWS = 64
_ALL_ROLES = 1_129

Tokens = NDArray[np.uint8]


def load_shakespeare(
    data_dir: Folder = None,
    *,
    roles: int | None = 143,
    seed: int = DRAW_SEED,
    context: int | None = None,
) -> Dataset:
    """The given number of roles, drawn with ``seed``, or all 1,129 of them for ``roles=None``.

    ``x`` are tokens, (samples, 80) uint8; ``y`` the token that follows. With a ``context`` of n,
    ``x`` are the last n characters as 80 n zeros and ones, (samples, 80 n) float32: something for a
    linear model. The samples are the same.
    """
    if context is not None and not 1 <= context <= WINDOW:
        raise ConfigError(f"shakespeare has {WINDOW} characters per sample, got context={context}.")
    path = find("shakespeare", "pg100.txt", data_dir)
    texts = _parse(path)
    chosen = list(texts) if roles is None else _draw(texts, roles, seed)
    data = _dataset({name: texts[name] for name in chosen})
    if context is None:
        return data
    x_train, x_test = (one_hot(x[:, -context:]) for x in (data.x_train, data.x_test))
    return replace(data, x_train=x_train, x_test=x_test)


def one_hot(tokens: Tokens) -> NDArray[np.float32]:
    """Tokens (samples, n) as (samples, 80 n): of each 80 numbers that of the token is 1."""
    samples, context = tokens.shape
    found = np.zeros((samples, context, len(ALPHABET)), np.float32)
    np.put_along_axis(found, tokens[:, :, None].astype(np.int64), 1.0, axis=2)
    return found.reshape(samples, -1)


def _parse(path: Path) -> dict[str, Tokens]:
    """Role -> its text as tokens, for all roles with at least one window."""
    text = read(path).decode("utf-8-sig", errors="replace")
    texts = {name: _tokens(lines) for name, lines in _lines_by_role(text.splitlines())}
    texts = {name: tokens for name, tokens in texts.items() if len(tokens) > WINDOW}
    if len(texts) != _ALL_ROLES:
        raise damaged(
            path,
            f"it gives {len(texts):,} speaking roles, not {_ALL_ROLES:,}; only the World Library "
            "edition of eBook 100 (1994, posted again in 2011) has the layout that parses",
        )
    return texts


def _lines_by_role(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Every role as ``PLAY / ROLE`` with its lines, in the order of its first line."""
    openings = [number for number, line in enumerate(lines) if "by William Shakespeare" in line]
    for start, end in pairwise([*openings, len(lines)]):
        above = [line.strip() for line in reversed(lines[max(start - 7, 0) : start - 1])]
        title = next(filter(None, above), "")
        play = _speeches(lines[start + 1 : end], indented=title != "THE COMEDY OF ERRORS")
        if len(play) >= 2:
            yield from ((f"{title} / {role}", said) for role, said in play.items() if len(said) > 2)


def _speeches(lines: Iterable[str], *, indented: bool) -> dict[str, list[str]]:
    """Role -> the lines it says in one play."""
    margin, before = ("    ", "  ") if indented else ("", "")
    begins = re.compile(before + r"([a-zA-Z][a-zA-Z ]*)\. (.*)").match
    said: dict[str, list[str]] = {}
    role = None
    for line in lines:
        if match := begins(line):
            role = match[1].upper()
            if not indented and role.startswith("ACT "):
                role = None
            else:
                said.setdefault(role, []).append(match[2])
        elif role and line.startswith(margin):
            if not indented and line.startswith("<"):
                role = None
            else:
                said[role].append(line[len(margin) :])
    return said


def _tokens(lines: list[str]) -> Tokens:
    return letters(re.sub("  +", " ", " ".join(lines) + " "))


def letters(text: str) -> Tokens:
    """A text as tokens."""
    return _TOKEN_OF[np.frombuffer(text.encode("latin-1", errors="replace"), np.uint8)]


# Character code -> token; a character outside the alphabet (none in this text) is a blank.
_TOKEN_OF = np.full(256, ALPHABET.index(" "), np.uint8)
_TOKEN_OF[np.frombuffer(ALPHABET.encode(), np.uint8)] = np.arange(len(ALPHABET))


def _draw(texts: dict[str, Tokens], roles: int, seed: int) -> list[str]:
    able = [name for name, tokens in texts.items() if len(tokens) - WINDOW >= _LEAST_WINDOWS]
    if not 1 <= roles <= len(able):
        raise ConfigError(
            f"shakespeare has {len(able):,} roles with at least {_LEAST_WINDOWS} samples, got "
            f"roles={roles}. Choose 1 to {len(able):,}, or None for all {len(texts):,} roles."
        )
    drawn = np.random.default_rng(seed).choice(len(able), roles, replace=False)
    return [able[number] for number in sorted(drawn)]


def _dataset(texts: dict[str, Tokens]) -> Dataset:
    windows = np.array([len(tokens) - WINDOW for tokens in texts.values()])
    train = windows * 4 // 5
    return Dataset(
        "shakespeare",
        *_samples(texts.values(), np.zeros_like(train), train),
        *_samples(texts.values(), train, windows),
        classes=len(ALPHABET),
        roles=tuple(texts),
        role_train=np.repeat(np.arange(len(texts)), train),
        role_test=np.repeat(np.arange(len(texts)), windows - train),
    )


def _samples(
    texts: Iterable[Tokens], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[Tokens, NDArray[np.int64]]:
    """The samples from ``start`` to ``end`` of every role, copied once from views of its text."""
    samples = int((ends - starts).sum())
    x, y = np.empty((samples, WINDOW), np.uint8), np.empty(samples, np.int64)
    at = 0
    for tokens, start, end in zip(texts, starts, ends, strict=True):
        rows = slice(at, at := at + end - start)
        x[rows] = np.lib.stride_tricks.sliding_window_view(tokens, WINDOW)[start:end]
        y[rows] = tokens[WINDOW + start : WINDOW + end]
    return x, y
