# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Indexes whose URL carries a user and a token: nobody else is to see these, and every user sees command lines."""

from __future__ import annotations

import json
import re
from typing import Any, List, Mapping, Sequence, Tuple

_USERINFO = re.compile(r"(?<=://)[^/?#\s\"']*@")

# Environment variables would replace the extra indexes of pip's own setting, where options add to them.
_RUN = (
    "import json, runpy, sys; sys.argv[1:] = json.load(sys.stdin); "
    "runpy.run_module('pip', run_name='__main__', alter_sys=True)"
)


def command(python: str, options: Sequence[str]) -> Tuple[List[str], str]:
    """pip's command line, and its standard input, which has the options."""
    return [python, "-c", _RUN], json.dumps(list(options))


def sources(params: Mapping[str, Any]) -> List[str]:
    """Where a module's parameters say that packages are."""
    return [*filter(None, [params["index_url"]]), *params["extra_index_urls"], *params["find_links"]]


def secrets(urls: Sequence[str]) -> List[str]:
    """What no output may show. With its @, as a user alone may be a word of every path."""
    return [found.group() for found in map(_USERINFO.search, urls) if found]


def bare(text: str) -> str:
    """A text with its URLs' users and tokens left out."""
    return _USERINFO.sub("", text)
