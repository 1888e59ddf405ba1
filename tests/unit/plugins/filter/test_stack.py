"""The stack's keys, whatever way the user wrote it."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.filter.stack import stack
from ansible_collections.torchfleet.cluster.plugins.filter.stack_report import stack_report


@pytest.mark.parametrize(
    ("raw", "key", "wanted"),
    [
        (None, "torch", None),
        ({}, "deepspeed", None),
        ("torch-2.13-cpu", "torch", "2.13.0"),
        ({"set": "torch-2.13-cu126", "torch": "2.12.1"}, "torch", "2.12.1"),
        ({"set": "torch-2.13-cu126"}, "cuda", "12.6"),
        ({"cuda": 12.8, "driver": 580}, "cuda", "12.8"),
        ({"driver": 580}, "driver", "580"),
        ({"allow_unlisted": True}, "allow_unlisted", True),
    ],
)
def test_every_key_has_its_value(raw, key, wanted):
    assert stack(raw)[key] == wanted


def test_a_report_without_facts_says_so():
    assert stack_report([{}]) == ["unnamed: unknown system, no Python, no GCC, no CUDA toolkit, no GPU"]
