"""A verified file is had whole or not at all, and fetched once."""

from __future__ import annotations

import hashlib
import io
import os
import threading

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _download
from ansible_collections.torchfleet.cluster.plugins.module_utils._download import DownloadError, file_name
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._download import (
    CURRENT_SECONDS,
    check_sha256,
    fetch,
    fetch_current,
    local_file,
)

CONTENT = b"an installer " * 1000
SUM = hashlib.sha256(CONTENT).hexdigest()
URL = "https://example.org/a/Installer%201.sh?x=1"


class Server:
    """Serves `content`, from a byte on where `ranges`; breaks off after `breaks` bytes. `tag` is what it is known by."""

    def __init__(self, content=CONTENT, ranges=True, breaks=None, tag="", length=None):
        self.content, self.ranges, self.breaks, self.tag, self.length = content, ranges, breaks, tag, length
        self.calls = []

    def __call__(self, url, headers):
        start = int(headers.get("Range", "bytes=0-")[len("bytes=") : -1])
        self.calls.append(start)
        if not self.ranges or headers.get("If-Range", self.tag) != self.tag:
            start = 0
        answer = Answer(self.content[start:], self.breaks)
        answer.status = 206 if start else 200
        answer.headers = {"ETag": self.tag, "Content-Length": str(self.length or len(self.content) - start)}
        return answer


class Answer(io.BytesIO):
    def __init__(self, content, breaks):
        super().__init__(content if breaks is None else content[:breaks])
        self.breaks = breaks

    def read(self, size=-1):
        chunk = super().read(size)
        if not chunk and self.breaks is not None:
            raise ConnectionResetError("reset by peer")
        return chunk


def test_a_file_is_fetched_once(tmp_path):
    server = Server()
    path, size = fetch(URL, SUM, tmp_path, server)
    assert (path.name, path.read_bytes(), size) == ("Installer 1.sh", CONTENT, len(CONTENT))
    assert fetch(URL, SUM, tmp_path, server) == (path, 0)
    assert server.calls == [0]


def test_nodes_that_want_it_at_once_share_one_fetch(tmp_path):
    server, sizes = Server(), []
    threads = [threading.Thread(target=lambda: sizes.append(fetch(URL, SUM, tmp_path, server)[1])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.calls == [0]
    assert sorted(sizes) == [0] * 7 + [len(CONTENT)]


@pytest.mark.parametrize("ranges", [True, False])
def test_one_that_broke_off_is_continued(tmp_path, ranges):
    with pytest.raises(DownloadError, match="broke off after 500 bytes"):
        fetch(URL, SUM, tmp_path, Server(breaks=500))
    server = Server(ranges=ranges)
    path, size = fetch(URL, SUM, tmp_path, server)
    assert path.read_bytes() == CONTENT
    assert server.calls == [500]
    assert size == (len(CONTENT) - 500 if ranges else len(CONTENT))


@pytest.mark.parametrize("content", [b"<html>404</html>", CONTENT[:-1], CONTENT + b"x", b""])
def test_the_wrong_file_is_not_kept(tmp_path, content):
    with pytest.raises(DownloadError, match="not the wanted file"):
        fetch(URL, SUM, tmp_path, Server(content))
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]
    assert fetch(URL, SUM, tmp_path, Server())[1] == len(CONTENT)


def test_a_cache_that_was_damaged_is_fetched_again(tmp_path):
    path, _size = fetch(URL, SUM, tmp_path, Server())
    path.write_bytes(b"damaged")
    assert fetch(URL, SUM, tmp_path, Server())[0].read_bytes() == CONTENT


def test_a_full_disk_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    with pytest.raises(DownloadError, match="torchfleet_cache"):
        fetch(URL, SUM, blocked, Server())


def test_a_server_out_of_reach_is_named(tmp_path):
    def refuse(url, headers):
        raise OSError("Name or service not known")

    with pytest.raises(DownloadError, match="cannot be reached from this controller"):
        fetch(URL, SUM, tmp_path, refuse)


def test_a_file_without_a_sum_is_shared_for_a_while_and_then_asked_for_anew(tmp_path):
    server = Server()
    path, size = fetch_current(URL, tmp_path, server, 1000.0)
    os.utime(path, (1000.0, 1000.0))
    assert (path.read_bytes(), size) == (CONTENT, len(CONTENT))
    assert fetch_current(URL, tmp_path, server, 1000.0 + CURRENT_SECONDS - 1) == (path, 0)
    assert fetch_current(URL, tmp_path, Server(b"replaced"), 1000.0 + CURRENT_SECONDS) == (path, len(b"replaced"))
    assert path.read_bytes() == b"replaced"


def test_a_file_without_a_sum_that_broke_off_is_begun_anew(tmp_path):
    with pytest.raises(DownloadError, match="broke off"):
        fetch_current(URL, tmp_path, Server(breaks=500), 0.0)
    server = Server()
    assert fetch_current(URL, tmp_path, server, 0.0)[1] == len(CONTENT)
    assert server.calls == [0]


def test_a_file_without_a_sum_comes_by_https_alone(tmp_path):
    with pytest.raises(DownloadError, match="is not fetched by https: set its sha256"):
        fetch_current("http://example.org/a.deb", tmp_path, Server(), 0.0)


@pytest.mark.parametrize("value", [None, "", "abc", "g" * 64, 12])
def test_a_sum_that_is_none(value):
    with pytest.raises(DownloadError, match="64 hex digits"):
        check_sha256(value)


def test_a_sum_in_its_usual_forms():
    assert check_sha256("sha256:" + SUM) == check_sha256(f" {SUM.upper()} ") == SUM


def test_files_of_the_controller(tmp_path):
    path = tmp_path / "a.run"
    path.write_bytes(CONTENT)
    assert local_file(str(path), SUM) == path
    with pytest.raises(DownloadError, match="is not the wanted file"):
        local_file(str(path), "0" * 64)
    with pytest.raises(DownloadError, match="is not on this controller"):
        local_file(str(tmp_path / "none"), SUM)


def test_names():
    assert file_name("https://example.org/") == "download"


@pytest.mark.parametrize(
    ("first", "second", "start", "came"),
    [
        ({"tag": '"1"'}, {"tag": '"1"'}, 500, len(CONTENT) - 500),
        ({"tag": '"1"'}, {"tag": '"2"'}, 500, len(CONTENT)),
        ({"tag": 'W/"1"'}, {"tag": 'W/"1"'}, 0, len(CONTENT)),
        ({}, {}, 0, len(CONTENT)),
        ({"tag": '"1"'}, {"tag": '"1"', "ranges": False}, 500, len(CONTENT)),
    ],
    ids=["same", "replaced", "weak", "no tag", "no ranges"],
)
def test_a_file_without_a_sum_is_continued_where_the_server_knows_it_again(tmp_path, first, second, start, came):
    with pytest.raises(DownloadError, match="broke off"):
        fetch_current(URL, tmp_path, Server(b"x" * 500 + CONTENT[500:], breaks=500, **first), 1000.0)
    server = Server(**second)
    path, size = fetch_current(URL, tmp_path, server, 1000.0)
    assert (server.calls, size) == ([start], came)
    assert path.read_bytes()[500:] == CONTENT[500:]


def test_what_has_no_room_is_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(_download, "_copy", None)
    with pytest.raises(DownloadError, match=r"on this controller has \d+ left: make room, or set torchfleet_cache"):
        fetch(URL, SUM, tmp_path, Server(length=1 << 60))


def test_an_end_that_comes_too_early_is_seen_without_a_sum(tmp_path):
    with pytest.raises(DownloadError, match=f"after {len(CONTENT)} of {len(CONTENT) + 1} bytes"):
        fetch_current(URL, tmp_path, Server(length=len(CONTENT) + 1), 1000.0)
