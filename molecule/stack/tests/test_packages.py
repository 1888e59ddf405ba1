"""Packages of a repository that all nodes want at once: how often it is asked for them."""

from __future__ import annotations

import pytest
import stand_ins
from lab import keep

NAME = "nvidia-stand-in"
SIZE = 8 << 20


@pytest.fixture(autouse=True)
def repository(lab, hosts, tmp_path):
    """Two packages of 8 MiB, one of which wants the other."""
    stand_ins.deb(tmp_path, NAME, "580.1-1", SIZE, f"{NAME}-libs (>= 580)")
    stand_ins.deb(tmp_path, NAME, "580.2-1", SIZE, f"{NAME}-libs (>= 580)")
    for version in ("580.1-1", "580.2-1"):
        stand_ins.deb(tmp_path, f"{NAME}-libs", version, SIZE)
    with stand_ins.served(tmp_path, stand_ins.address_of(lab)) as url:
        for host in hosts.values():
            host.check_output(f"echo 'deb [trusted=yes] {url} ./' > /etc/apt/sources.list.d/stand-ins.list")
        try:
            yield
        finally:
            for host in hosts.values():
                host.run_test(
                    f"apt-mark unhold {NAME}; dpkg -P {NAME} {NAME}-libs; rm -f /etc/apt/preferences.d/torchfleet-nvidia-driver"
                )
                host.check_output(
                    "rm -rf /etc/apt/sources.list.d/stand-ins.list /etc/modprobe.d/torchfleet-nouveau.conf "
                    f"/var/cache/apt/archives/{NAME}* /opt/torchfleet/packages"
                )


def driver(lab, *flags, **variables):
    stand_ins.Index.asked.clear()
    variables = {"nvidia_driver_packages": [f"{NAME}=580.2-*"], **variables}
    options = {"nvidia_driver_enabled": True, "nvidia_driver_version": "580", "nvidia_driver_without_gpu": True}
    done = lab.playbook("provision", "-t", "nvidia_driver", *flags, **options, **variables)
    return done, " ".join(done.output.split())


def versions(host):
    return host.check_output(f"dpkg-query -W -f '${{Version}} ' {NAME} {NAME}-libs").split()


@pytest.mark.parametrize(("fetch", "times"), [("once", 1), ("each", 2)])
def test_each_package_is_downloaded_that_often(lab, hosts, tmp_path, fetch, times):
    assert driver(lab, "--check", torchfleet_package_fetch=fetch)[0].code == 0
    assert stand_ins.asked(".deb") == []
    done, _words = driver(lab, torchfleet_package_fetch=fetch)
    assert done.code == 0, done.output
    files = sorted([f"{NAME}_580.2-1_all.deb", f"{NAME}-libs_580.2-1_all.deb"] * times)
    assert stand_ins.asked(".deb") == files
    size = sum((tmp_path / name).stat().st_size for name in stand_ins.asked(".deb"))
    keep("downloads.json", {f"apt: {fetch}": {"nodes": len(hosts), "files": len(files), "bytes": size}})
    for host in hosts.values():
        assert versions(host) == ["580.2-1", "580.2-1"]
        left = host.run(f"ls -d /opt/torchfleet/packages /var/cache/apt/archives/{NAME}*").stdout
        assert fetch == "each" or left == ""
    done, _words = driver(lab, torchfleet_package_fetch=fetch)
    assert set(done.changed().values()) == {0}
    assert stand_ins.Index.asked == []


def test_what_did_not_get_through_is_downloaded(lab, hosts):
    hosts["node2"].check_output("mkdir -p /opt/torchfleet/packages && touch /opt/torchfleet/packages/.passed.releases")
    done, words = driver(lab)
    assert done.code == 0, done.output
    assert "1 of 2 nodes have the tree" in words and "Not there: node2: " in words
    assert len(stand_ins.asked(".deb")) == 4
    for host in hosts.values():
        assert versions(host) == ["580.2-1", "580.2-1"]


def test_a_node_that_lacks_nothing_takes_no_part(lab, hosts):
    hosts["node1"].check_output(f"apt-get -qq update && apt-get -qq -y install {NAME} && apt-mark hold {NAME}")
    done, words = driver(lab)
    assert done.code == 0, done.output
    assert len(stand_ins.asked(".deb")) == 2
    assert "nodes have the tree" not in words


def test_a_version_is_pinned_with_what_it_brings(lab, hosts, tmp_path_factory):
    """What the package wants in that release or a newer one comes in that release, and stays there."""
    pin = {"name": "nvidia-driver", "packages": ["*nvidia*"], "version": "580.1-*"}
    play = (
        "- hosts: train\n  gather_facts: false\n  any_errors_fatal: true\n  roles:\n"
        "    - role: torchfleet.cluster.system_packages\n"
    )
    name = lab.written(tmp_path_factory.mktemp("play"), play)
    done = lab.playbook(name, system_packages_names=[f"{NAME}=580.1-*"], system_packages_pin=pin)
    assert done.code == 0, done.output
    for host in hosts.values():
        assert versions(host) == ["580.1-1", "580.1-1"]
        host.check_output("apt-get -qq -y upgrade")
        assert versions(host) == ["580.1-1", "580.1-1"]
    done = lab.playbook(name, system_packages_names=[f"{NAME}=580.3-*"], system_packages_pin=pin)
    assert done.code != 0
    words = " ".join(done.output.split())
    assert f"the repositories have no {NAME} 580.3-*, they have 580.2-1, 580.1-1: nothing was installed" in words
