"""What limits, shared memory and ports are to be, in the words of the files that set them."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _tuning
from ansible_collections.torchfleet.cluster.plugins.module_utils._tuning import TuningError


@pytest.mark.parametrize(
    ("value", "unit", "wanted"),
    [
        ("unlimited", 1024, -1),
        ("infinity", 1, -1),
        ("64g", 1024, 64 << 30),
        ("64GiB", 1024, 64 << 30),
        (1048576, 1, 1048576),
    ],
)
def test_limits(value, unit, wanted):
    assert _tuning.parse_limit(value, "x", unit) == wanted


@pytest.mark.parametrize(("value", "unit"), [("many", 1), ("64g", 1), ("", 1024), ("-2", 1), ("1.5g", 1024)])
def test_what_is_no_limit_is_refused_by_name(value, unit):
    with pytest.raises(TuningError, match="node_tuning_x"):
        _tuning.parse_limit(value, "node_tuning_x", unit)


def test_pam_counts_memory_in_kib_and_names_root():
    text = _tuning.limit_files(64 << 30, 1048576)[_tuning.LIMITS]
    assert "* hard memlock 67108864\n" in text
    assert "root soft nofile 1048576\n" in text
    assert "DefaultLimitMEMLOCK=68719476736\n" in _tuning.limit_files(64 << 30, None)[_tuning.SYSTEM]
    assert "DefaultLimitMEMLOCK=infinity\n" in _tuning.limit_files(-1, None)[_tuning.USER]


def test_limits_that_nobody_wants_write_no_file():
    assert _tuning.limit_files(None, None) == {}


@pytest.mark.parametrize("value", ["50000", "50000-50010", "80-1000", "60000-70000", "51000-50000", "a-b"])
def test_ports_that_cannot_be(value):
    with pytest.raises(TuningError, match="node_tuning_ports"):
        _tuning.parse_ports(value)


def test_ports():
    assert _tuning.parse_ports("50000-51000") == (50000, 51000)
    assert "ip_local_port_range = 50000 51000" in _tuning.port_file((50000, 51000))


def test_hard_limits_of_a_process():
    text = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         8388608              unlimited            bytes     \n"
        "Max open files            1024                 524288               files     \n"
    )
    assert _tuning.process_limits(text) == {"memlock": -1, "nofile": 524288}


@pytest.mark.parametrize(("value", "wanted"), [("50%", 500), ("1%", 10)])
def test_a_share_of_the_memory(value, wanted):
    assert _tuning.shm_bytes(value, 1000) == wanted


@pytest.mark.parametrize("value", ["0%", "101%", "64", "unlimited", "half"])
def test_sizes_that_cannot_be(value):
    with pytest.raises(TuningError, match="node_tuning_shm_size"):
        _tuning.shm_bytes(value, 1 << 30)


@pytest.mark.parametrize(
    ("fstab", "line"),
    [
        ("/dev/sda1 / ext4 defaults 0 1\n", "tmpfs\t/dev/shm\ttmpfs\tnosuid,nodev,size=8g\t0\t0"),
        ("tmpfs /dev/shm tmpfs defaults,size=1g,noexec 0 0\n", "tmpfs\t/dev/shm\ttmpfs\tnoexec,size=8g\t0\t0"),
        ("# tmpfs /dev/shm tmpfs defaults 0 0\n", "tmpfs\t/dev/shm\ttmpfs\tnosuid,nodev,size=8g\t0\t0"),
    ],
)
def test_fstab(fstab, line):
    once = _tuning.fstab_with_shm(fstab, "8g")
    assert line in once.splitlines()
    assert _tuning.fstab_with_shm(once, "8g") == once


@pytest.mark.parametrize(
    ("show", "services", "kept"),
    [
        ("NTPSynchronized=yes\n", {}, True),
        ("NTPSynchronized=no\n", {"chrony": "active"}, True),
        ("NTPSynchronized=no\n", {"chrony": "inactive"}, False),
        ("", {}, False),
    ],
)
def test_the_clock(show, services, kept):
    assert _tuning.time_sync(show, services)[0] is kept


def test_sizes_that_the_kernel_rounds_are_the_same():
    assert _tuning.same_size(1 << 30, (1 << 30) - 4096)
    assert not _tuning.same_size(1 << 30, 2 << 30)
