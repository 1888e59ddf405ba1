# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
import re

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._managed_block import (
    BEGIN,
    END,
    replace,
    split,
    user_lines,
)

BODY = "ours 1\nours 2\n"
BLOCK = f"{BEGIN}\n{BODY}{END}\n"

# What a file may hold: plain lines, other tools' markers, odd bytes (\udcff is a byte that is no UTF-8), line ends that
# only Python knows, and look-alikes of our markers.
PIECES = [
    "user\n",
    "user # comment\n",
    "\n",
    "  \t\n",
    "crlf\r\n",
    "lone\rreturn\n",
    "form\x0cfeed\n",
    "line\u2028separator\x85\n",
    "byte \udcff\n",
    "# BEGIN ANSIBLE MANAGED BLOCK\n",
    "# END ANSIBLE MANAGED BLOCK\n",
    f"{BEGIN} of something else\n",
    f"## {END[2:]}\n",
    f"echo '{BEGIN}'\n",
    f"a\x0b{BEGIN}\n",
]


def generated(seed: int, extra: list[str]) -> str:
    chance = random.Random(seed)
    text = "".join(chance.choices(PIECES + extra, k=chance.randrange(9)))
    return text[:-1] if text and chance.random() < 0.3 else text


_START = r"(?:(?<=\n)|\A)"
_STOP = r"[ \r]*(?:\n|\Z)"
_ANY = f"(?:{BEGIN}|{END}){_STOP}"
_OURS = re.compile(rf"{_START}(?:{BEGIN}{_STOP}(?:(?!{_ANY})[^\n]*\n)*{END}{_STOP}|{_ANY})")


@pytest.mark.parametrize("first", [True, False])
def test_users_text_survives_byte_for_byte_and_a_second_time_changes_nothing(first: bool) -> None:
    for seed in range(300):
        text = generated(seed, [])
        once = replace(text, BODY, first)
        end = "" if first or text.endswith("\n") or not text else "\n"
        assert once == (BLOCK + text if first else text + end + BLOCK), seed
        assert replace(once, BODY, first) == once, seed
        assert replace(once, "", first) == text + end, seed


@pytest.mark.parametrize("first", [True, False])
def test_whatever_became_of_our_blocks_one_is_left_and_no_line_of_the_users_is_lost(first: bool) -> None:
    for seed in range(1000):
        text = generated(seed, [f"{BEGIN}\n", f"{END}\n", BLOCK, f"{BEGIN}\r\nours 1\r\n{END}\r\n"])
        once = replace(text, BODY, first)
        assert once.count(BLOCK) == 1, seed
        assert once.replace(BLOCK, "").rstrip("\n") == _OURS.sub("", text).rstrip("\n"), seed
        assert replace(once, BODY, first) == once, seed
        assert replace(once, "other\n", first).replace("other\n", BODY) == once, seed


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("", "", "")),
        ("a", ("a", "", "")),
        ("a\nb\n", ("a\nb\n", "", "")),
        (BLOCK, ("", BODY, "")),
        (f"a\n{BLOCK}b", ("a\n", BODY, "b")),
        (f"a\n{BLOCK}b\n{BEGIN}\nolder\n{END}\nc\n", ("a\n", BODY, "b\nc\n")),
        (f"a\n{BEGIN}\n{END}\nb\n", ("a\n", "", "b\n")),
        (f"a\n{BEGIN}\nb\n", ("a\nb\n", "", "")),
        (f"a\n{END}\nb\n", ("a\nb\n", "", "")),
        (f"a\n{BEGIN}\nb\n{BLOCK}c\n", ("a\nb\n", BODY, "c\n")),
        (f"a\n{BLOCK}b\n{END}\nc\n", ("a\n", BODY, "b\nc\n")),
        (f"a\r\n{BEGIN}\r\nours\r\n{END}\r\nb\r\n", ("a\r\n", "ours\r\n", "b\r\n")),
        (f"{BEGIN}  \nours\n{END}", ("", "ours\n", "")),
    ],
)
def test_split(text: str, parts: tuple[str, str, str]) -> None:
    assert split(text) == parts


@pytest.mark.parametrize(
    ("text", "first", "result"),
    [
        ("", False, BLOCK),
        ("", True, BLOCK),
        ("a", False, f"a\n{BLOCK}"),
        ("a", True, f"{BLOCK}a"),
        (f"a\n{BEGIN}\nold\n{END}\nb\n", False, f"a\n{BLOCK}b\n"),
        (f"a\n{BEGIN}\nold\n{END}\nb\n", True, f"a\n{BLOCK}b\n"),
        (f"a\n{BEGIN}\nold\n{END}", False, f"a\n{BLOCK}"),
    ],
)
def test_a_new_block_goes_where_it_is_wanted_and_an_old_one_stays_in_its_place(
    text: str, first: bool, result: str
) -> None:
    assert replace(text, BODY, first) == result


def test_lines_have_their_numbers_in_the_file() -> None:
    assert user_lines(f"a\n{BLOCK}b\x0cb\r\nc") == [(1, "a\n"), (6, "b\x0cb\r\n"), (7, "c")]
