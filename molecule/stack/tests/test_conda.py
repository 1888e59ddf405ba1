"""Role conda, with a stand-in for its installer: silent, verified, resumed, and the same list on every node."""

from __future__ import annotations

import pytest
import stand_ins

PREFIX = "/opt/torchfleet/conda"


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conda")
    return {
        "conda_enabled": True,
        "conda_installer": stand_ins.write(folder / "Miniforge3.sh", stand_ins.CONDA),
        "conda_lock": str(folder / "conda.lock"),
    }


@pytest.fixture(autouse=True, scope="module")
def bare(hosts):
    for host in hosts.values():
        host.run_test(f"rm -rf {PREFIX}* /opt/torchfleet/downloads")
    yield
    for host in hosts.values():
        host.run_test(f"rm -rf {PREFIX}*")


def conda(lab, *flags, **variables):
    done = lab.playbook("provision", "-t", "conda", *flags, **variables)
    return done, " ".join(done.output.split())


def test_the_wrong_file_leaves_the_node_as_it_was(lab, hosts, options):
    wrong = {**options["conda_installer"], "sha256": "0" * 64}
    done, words = conda(lab, **{**options, "conda_installer": wrong})
    assert done.code != 0
    assert "is not the wanted file: its sha256 is" in words
    assert not hosts["node1"].file(PREFIX).exists


def test_a_full_disk_leaves_the_node_as_it_was(lab, hosts, options):
    for host in hosts.values():
        host.run_test("mkdir -p /mnt/small && mount -t tmpfs -o size=8m tmpfs /mnt/small")
    try:
        done, words = conda(lab, **{**options, "conda_prefix": "/mnt/small/conda"})
        assert done.code != 0
        assert "/mnt/small/conda is as it was" in words
        assert hosts["node1"].check_output("ls -A /mnt/small") == ""
    finally:
        for host in hosts.values():
            host.run_test("umount /mnt/small")


def test_anaconda_wants_its_licence_read(lab, options):
    done, words = conda(lab, **{**options, "conda_distribution": "anaconda"})
    assert done.code != 0
    assert "whose terms of service conda_accept_licence says that you agree to" in words


def test_a_bare_node_passes_in_check_mode(lab, options):
    assert conda(lab, "--check", **options)[0].code == 0


def test_an_installation_that_was_cut_off_is_begun_anew(lab, hosts, options):
    hosts["node2"].run_test("touch /tmp/pull-the-plug")
    assert conda(lab, **options)[0].code != 0
    hosts["node2"].check_output(f"rm /tmp/pull-the-plug; test -e {PREFIX}.installing")
    done, _words = conda(lab, **options)
    assert done.code == 0, done.output
    assert set(conda(lab, **options)[0].changed().values()) == {0}


def test_every_node_has_the_same_list(hosts):
    lists = {host.check_output(f"cat {PREFIX}/envs/torchfleet/conda-meta/stand-in") for host in hosts.values()}
    assert len(lists) == 1
    assert "python=3.12" in lists.pop()
