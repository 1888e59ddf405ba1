"""What pip is told, so that one machine collects for another."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._wheelhouse import (
    key_of,
    last_words,
    oldest,
    pip_platforms,
    pip_target,
    split_sources,
)


def test_platforms_reach_back_to_the_oldest():
    tags = pip_platforms("x86_64", "2.36")
    assert tags[0] == "manylinux_2_36_x86_64"
    assert {"manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"} <= set(tags)


def test_an_old_node_gets_nothing_newer():
    assert "manylinux_2_28_x86_64" not in pip_platforms("x86_64", "2.17")
    assert "manylinux_2_17_aarch64" in pip_platforms("aarch64", "")


def test_target():
    options = pip_target("3.11.2", "x86_64", "2.36")
    assert options[:3] == ["--only-binary=:all:", "--python-version", "3.11"]
    assert "cp311" in options and "abi3" in options and "none" in options


@pytest.mark.parametrize("python", ["", "three", "3"])
def test_a_python_that_is_none(python):
    with pytest.raises(ValueError, match="is not a Python version"):
        pip_target(python, "x86_64", "2.36")


def test_sources_go_apart_whatever_their_spelling():
    assert split_sources(["torch==2.13.0", "DeepSpeed==0.19.8", "a_b"], ["deepspeed", "a.b"]) == (
        ["torch==2.13.0"],
        ["DeepSpeed==0.19.8", "a_b"],
    )


def test_the_same_wishes_share_a_folder():
    assert key_of({"packages": ["a", "b"], "glibc": "2.36"}) == key_of({"glibc": "2.36", "packages": ["b", "a"]})
    assert key_of({"packages": ["a"]}) != key_of({"packages": ["a==1"]})


def test_words_of_pip():
    assert last_words("WARNING: Retrying\nERROR: No matching distribution found for x==9\n\n") == (
        "ERROR: No matching distribution found for x==9"
    )


def test_the_oldest_c_library_counts():
    assert oldest(["2.36", "2.5", "2.31", ""]) == "2.5"
    assert oldest([]) == ""
