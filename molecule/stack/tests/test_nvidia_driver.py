"""Role nvidia_driver without a GPU: small packages and a script stand in for the driver's."""

from __future__ import annotations

import pytest
import stand_ins

NAME = "nvidia-stand-in"


@pytest.fixture(autouse=True, scope="module")
def packages(hosts):
    for host in hosts.values():
        for version in ("535.1-1", "535.2-1"):
            stand_ins.package(host, NAME, version)
        stand_ins.repository(host)
    yield
    for host in hosts.values():
        host.run_test(
            f"apt-mark unhold {NAME}; dpkg -P {NAME}; rm -rf /srv/stand-ins /etc/apt/sources.list.d/stand-ins.list "
            "/etc/modprobe.d/torchfleet-nouveau.conf /var/lib/torchfleet/nvidia-driver-* /var/lib/driver-stand-in"
        )


def driver(lab, *flags, **variables):
    variables = {"nvidia_driver_enabled": True, "nvidia_driver_version": "535", **variables}
    done = lab.playbook("provision", "-t", "nvidia_driver", *flags, **variables)
    return done, " ".join(done.output.split())


def test_nothing_is_done_where_there_is_no_gpu(lab):
    done, words = driver(lab)
    assert done.code == 0, done.output
    assert "node1: none: there is no NVIDIA GPU" in words
    assert set(done.changed().values()) == {0}


def test_it_is_pinned_held_and_upgraded_on_request_alone(lab, hosts):
    options = {"nvidia_driver_without_gpu": True, "nvidia_driver_packages": [f"{NAME}=535.1-*"]}
    done, _words = driver(lab, "--check", **options)
    assert done.code == 0, done.output
    done, _words = driver(lab, **options)
    assert done.code == 0, done.output
    for host in hosts.values():
        host.run_test("apt-get -qq -y upgrade")
        assert host.check_output(f"dpkg-query -W -f '${{Version}}' {NAME}") == "535.1-1"
        assert NAME in host.check_output("apt-mark showhold")
        assert "blacklist nouveau" in host.file("/etc/modprobe.d/torchfleet-nouveau.conf").content_string
    assert set(driver(lab, **options)[0].changed().values()) == {0}
    options["nvidia_driver_packages"] = [f"{NAME}=535.2-*"]
    assert driver(lab, **options)[0].code == 0
    for host in hosts.values():
        assert host.check_output(f"dpkg-query -W -f '${{Version}}' {NAME}") == "535.2-1"
        assert NAME in host.check_output("apt-mark showhold")


def test_what_runs_is_kept_or_a_reboot_is_pending(lab, hosts):
    """A stand-in for nvidia-smi tells of a driver that runs."""
    for host in hosts.values():
        stand_ins.driver(host, "535.183.01")
    try:
        done, words = driver(lab)
        assert done.code == 0, done.output
        assert "node1: keep: driver 535.183.01 is there, 535 is wanted" in words
        done, words = driver(lab, nvidia_driver_version="580", nvidia_driver_packages=[f"{NAME}=535.2-*"])
        assert done.code == 0, done.output
        assert "node1: install: driver 535.183.01 is there, 580 is wanted" in words
        assert "a reboot is pending, which nvidia_driver_reboot_ok allows" in words
        done, words = driver(lab, nvidia_driver_version="580", nvidia_driver_modules="open")
        assert "Tesla V100-SXM2-32GB is not driven by open kernel modules" in words
    finally:
        for host in hosts.values():
            stand_ins.driver(host, None)


def test_the_installer_is_silent_and_runs_once(lab, hosts, tmp_path):
    options = {
        "nvidia_driver_without_gpu": True,
        "nvidia_driver_method": "run",
        "nvidia_driver_installer": stand_ins.write(tmp_path / "NVIDIA-Linux-x86_64.run", stand_ins.DRIVER),
    }
    for _again in range(2):
        done, _words = driver(lab, **options)
        assert done.code == 0, done.output
    assert set(done.changed().values()) == {0}
    for host in hosts.values():
        (call,) = host.check_output("cat /var/lib/driver-stand-in").splitlines()
        assert "--silent" in call and "--no-questions" in call


def test_headers_that_no_repository_has_are_missed_before_the_driver(lab, hosts, tmp_path):
    """The lab's kernel is not Debian's."""
    kernel = hosts["node1"].check_output("uname -r")
    installer = stand_ins.write(tmp_path / "NVIDIA-Linux-x86_64.run", stand_ins.DRIVER + "# not that of before\n")
    for host in hosts.values():
        host.check_output("rm -f /var/lib/driver-stand-in")
        stand_ins.driver(host, "470.256.02")
    try:
        done, words = driver(lab, nvidia_driver_method="run", nvidia_driver_installer=installer)
    finally:
        for host in hosts.values():
            stand_ins.driver(host, None)
    assert done.code != 0
    assert f"linux-headers-{kernel}" in words
    assert f"the headers of the running kernel {kernel}: upgrade the kernel and reboot into it, or install" in words
    assert set(done.changed().values()) == {0}
    for host in hosts.values():
        assert not host.file("/var/lib/driver-stand-in").exists


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"nvidia_driver_version": "580", "nvidia_driver_method": "distribution"},
            "debian12 has driver branch 535 of its own, not 580",
        ),
        ({"nvidia_driver_method": "run"}, "for run: url or src, and sha256"),
        (
            {"nvidia_driver_version": "580", "nvidia_driver_nvswitch": True},
            "fabric manager has to match it to the last digit",
        ),
    ],
)
def test_what_cannot_be_is_refused_first(lab, variables, words):
    done, said = driver(lab, nvidia_driver_without_gpu=True, **variables)
    assert done.code != 0
    assert words in said
    assert set(done.changed().values()) == {0}
