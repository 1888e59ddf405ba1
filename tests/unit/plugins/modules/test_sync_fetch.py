"""What one node fetches for all: once, continued, and nothing that is not what was asked for."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._download import DownloadError
from ansible_collections.torchfleet.cluster.plugins.modules import sync_fetch

URL = "https://example.org/model.bin"
CONTENT = b"weights " * 1000
SUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def served(monkeypatch):
    """Each call's headers; `content` can be replaced."""
    calls: list = []

    def answer(url, headers):
        calls.append(dict(headers))
        start = int(headers.get("Range", "bytes=0-")[len("bytes=") : -1])
        found = io.BytesIO(answer.content[start:])
        found.status, found.headers = 206 if start else 200, {"ETag": '"1"'}
        return found

    answer.content, answer.calls = CONTENT, calls
    monkeypatch.setattr(sync_fetch, "open_from", answer)
    return answer


@pytest.fixture
def places(tmp_path):
    folder, dest = tmp_path / ".set.fetched", tmp_path / "set"
    folder.mkdir()
    dest.mkdir()
    return folder, dest


def bring(folder: Path, checksum: str = "", url: str = URL):
    fetched = sync_fetch.Fetched(folder, url, checksum)
    size = sync_fetch.fetch(fetched, folder / "model.bin", bool(checksum))
    fetched.keep(folder / "model.bin")
    return size


@pytest.mark.parametrize("checksum", ["", SUM, SUM.upper(), "md5:" + hashlib.md5(CONTENT).hexdigest()])
def test_it_is_known_again_in_the_folder_and_in_the_tree(served, places, checksum):
    folder, dest = places
    assert bring(folder, checksum) == len(CONTENT)
    assert sync_fetch.Fetched(folder, URL, checksum).is_at(folder / "model.bin")
    (folder / "model.bin").rename(dest / "model.bin")
    assert sync_fetch.Fetched(folder, URL, checksum).is_at(dest / "model.bin")
    assert sync_fetch.Fetched(folder, URL, "").is_at(dest / "model.bin")


def damage(path: Path) -> None:
    path.write_bytes(b"W" + CONTENT[1:])


@pytest.mark.parametrize(
    ("change", "url", "checksum"),
    [
        (damage, URL, ""),
        (damage, URL, SUM),
        (os.unlink, URL, SUM),
        (lambda path: path.chmod(0o600), URL, SUM),
        (lambda path: None, URL + "?2", SUM),
        (lambda path: None, URL, "sha256:" + "0" * 64),
    ],
    ids=["damaged", "damaged, with a sum", "gone", "mode", "another URL", "another sum"],
)
def test_what_is_not_it_any_more_is_fetched_again(served, places, change, url, checksum):
    folder, _dest = places
    bring(folder)
    change(folder / "model.bin")
    assert not sync_fetch.Fetched(folder, url, checksum).is_at(folder / "model.bin")


def test_it_is_continued_and_what_lay_there_goes(served, places):
    folder, _dest = places
    for name, text in (("model.bin.part", CONTENT[:100]), ("model.bin.part.from", b'"1"'), ("old.bin", b"old")):
        (folder / name).write_bytes(text)
    assert bring(folder) == len(CONTENT) - 100
    assert served.calls == [{"Range": "bytes=100-", "If-Range": '"1"'}]
    assert sorted(path.name for path in folder.iterdir()) == ["model.bin", "source.json"]


def test_what_is_not_asked_for_is_not_kept(served, places):
    served.content = b"<html>not found</html>"
    with pytest.raises(DownloadError, match=r"wanted sha256:.* \(sync_checksum\)"):
        bring(places[0], SUM)
    assert not list(places[0].glob("model*"))


def test_a_checksum_that_is_none_is_named(places):
    with pytest.raises(DownloadError, match="sync_checksum is 'abc'"):
        sync_fetch.Fetched(places[0], URL, "abc")
