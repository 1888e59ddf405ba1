"""Trees: what belongs to one, what a node lacks, how it becomes the current one, and the chain between real processes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _sync_agent as agent

EXCLUDE_CASES = [
    (["*.pyc"], {"a.pyc": True, "d/b.pyc": True, "pyc": False}),
    (["__pycache__/"], {"__pycache__/": True, "d/__pycache__/": True, "__pycache__": False}),
    (["/runs/"], {"runs/": True, "d/runs/": False}),
    (["d/*.log"], {"d/a.log": True, "e/d/a.log": False, "d/e/a.log": False}),
    (["**/cache"], {"cache": True, "a/b/cache": True}),
    (["a/**/z"], {"a/z": True, "a/b/c/z": True}),
    (["a/**"], {"a/b": True, "a/b/c": True, "a": False}),
    (["*.log", "!keep.log"], {"x.log": True, "d/keep.log": False}),
    (["!keep.log", "*.log"], {"keep.log": True}),
    (
        ["# words", "", "x?z", "[ab].c", "[!ab].h"],
        {"xyz": True, "xz": False, "a.c": True, "c.h": True, "a.h": False, "# words": False},
    ),
    (["a.b"], {"a.b": True, "aXb": False}),
    (["\\!x"], {"!x": True}),
]


@pytest.mark.parametrize(("patterns", "answers"), EXCLUDE_CASES)
def test_excludes_are_gitignores(patterns, answers):
    rules = agent.Excludes(patterns)
    assert {path: rules.match(path.rstrip("/"), path.endswith("/")) for path in answers} == answers


class Place:
    """A node's folder, and the way of a tree onto it without a network."""

    def __init__(self, top):
        self.dest = str(top / "set")
        self.root = str(top / ".set.releases")
        os.makedirs(self.root)

    def plan(self, source, patterns=(), delete=False, thorough=False):
        entries, _fresh = agent.scan(str(source), patterns, {})
        self.release, manifest = agent.pack(entries)
        first = agent.plan(self.root, self.dest, self.release, patterns, delete, thorough, False)
        if first["state"] != "unknown":
            return first
        agent.write_file(f"{self.root}/{self.release}.manifest", manifest)
        return agent.plan(self.root, self.dest, self.release, patterns, delete, thorough, False)

    def fill(self, source, limit=None):
        part = agent.Part(self.root, self.release)
        part.attach()
        for number in part.missing()[:limit]:
            chunk = part.chunks[number]
            with open(os.path.join(source, chunk.entry.path), "rb") as stream:
                stream.seek(chunk.offset)
                assert part.write(number, stream.read(chunk.length))
        part.close()

    def switch(self, patterns=(), delete=False):
        agent.point(self.root, self.dest, agent.finish(self.root, self.dest, self.release, patterns, delete))
        agent.tidy(self.root, self.dest)

    def bring(self, source, patterns=(), delete=False):
        plan = self.plan(source, patterns, delete)
        if plan["state"] == "planned":
            self.fill(source)
            self.switch(patterns, delete)
        return plan

    def text(self, path):
        with open(os.path.join(self.dest, path), encoding="utf-8") as stream:
            return stream.read()


@pytest.fixture
def place(tmp_path):
    (tmp_path / "node").mkdir()
    return Place(tmp_path / "node")


@pytest.fixture
def source(tmp_path):
    top = tmp_path / "source"
    (top / "d").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "a").write_text("a\n", encoding="utf-8")
    (top / "none").touch()
    (top / "d" / "tool").write_text("t\n", encoding="utf-8")
    (top / "d" / "tool").chmod(0o755)
    (top / "locked").mkdir()
    (top / "locked" / "file").write_text("x\n", encoding="utf-8")
    (top / "locked" / "file").chmod(0o444)
    (top / "link").symlink_to("d/tool")
    (top / "big").write_bytes(os.urandom(2 * agent.CHUNK + 5))
    os.utime(top / "a", ns=(10**18, 10**18))
    return top


def listing(top):
    found = {}
    for path, info in agent.walk(str(top), agent.Excludes(())):
        full = os.path.join(top, path)
        what = os.readlink(full) if os.path.islink(full) else Path(full).read_bytes() if os.path.isfile(full) else None
        found[path] = (oct(info.st_mode), what)
    return found


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o2770, 0o555])
def test_a_tree_arrives_as_it_is(place, source, mode):
    source.chmod(mode)
    plan = place.bring(source)
    assert plan["need"] == 2 * agent.CHUNK + 5 + 6
    assert listing(place.dest) == listing(source)
    assert os.stat(place.dest).st_mode == os.stat(source).st_mode
    assert os.stat(f"{place.dest}/a").st_mtime_ns == 10**18
    assert place.plan(source)["state"] == "current"


def test_only_what_changed_is_wanted_and_the_rest_shares_its_blocks(place, source):
    place.bring(source)
    inode = os.stat(f"{place.dest}/d/tool").st_ino
    with open(source / "big", "r+b") as stream:
        stream.seek(agent.CHUNK + 3)
        stream.write(b"changed")
    os.rename(source / "a", source / "renamed")
    plan = place.bring(source)
    assert plan["need"] == agent.CHUNK
    assert listing(place.dest).keys() == {*listing(source), "a"}
    assert os.stat(f"{place.dest}/d/tool").st_ino == inode


def test_a_mode_alone_is_followed_without_touching_the_old_tree(place, source):
    place.bring(source)
    old = os.path.realpath(place.dest)
    held = os.open(old, os.O_RDONLY)
    (source / "a").chmod(0o600)
    assert place.bring(source)["need"] == 0
    assert os.stat(f"{place.dest}/a").st_mode & 0o777 == 0o600
    os.close(held)


@pytest.mark.parametrize("restore", [False, True])
def test_a_flipped_bit_is_wanted_again(place, source, restore):
    place.bring(source)
    info = os.stat(f"{place.dest}/big")
    with open(f"{place.dest}/big", "r+b") as stream:
        stream.seek(7)
        byte = stream.read(1)[0]
        stream.seek(7)
        stream.write(bytes([byte ^ 1]))
    if restore:
        os.utime(f"{place.dest}/big", ns=(info.st_atime_ns, info.st_mtime_ns))
    plan = place.bring(source)
    assert (plan["state"], plan["need"]) == ("planned", agent.CHUNK)
    assert listing(place.dest) == listing(source)
    assert place.plan(source)["state"] == "current"


def test_what_lies_in_a_spare_folder_takes_no_room_again(place, tmp_path):
    spare = tmp_path / "fetched"
    spare.mkdir()
    (spare / "model").write_bytes(os.urandom(agent.CHUNK + 1))
    entries, _fresh = agent.scan(str(spare / "model"), (), {})
    place.release, manifest = agent.pack(entries)
    agent.write_file(f"{place.root}/{place.release}.manifest", manifest)
    plan = agent.plan(place.root, place.dest, place.release, (), False, False, False, str(spare))
    assert (plan["state"], plan["need"]) == ("planned", 0)
    place.switch()
    assert os.stat(f"{place.dest}/model").st_ino == os.stat(spare / "model").st_ino
    assert os.stat(place.dest).st_mode & 0o777 == 0o755


def test_what_a_disk_lies_about_is_found_by_reading_all(place, source):
    place.bring(source)
    with open(f"{place.dest}/big", "r+b") as stream:
        stream.write(b"damaged")
    stats = agent.read_cache(f"{place.root}/stats.json")
    stats["big"] = (agent.signature(os.stat(f"{place.dest}/big")), stats["big"][1])
    agent.write_json(f"{place.root}/stats.json", stats)
    assert place.plan(source)["state"] == "current"
    plan = place.plan(source, thorough=True)
    assert (plan["state"], plan["need"]) == ("planned", agent.CHUNK)
    place.fill(source)
    place.switch()
    assert listing(place.dest) == listing(source)


def test_a_touch_is_no_change(place, source):
    place.bring(source)
    os.utime(f"{place.dest}/big")
    assert place.plan(source)["state"] == "current"


def damage_unlink(place):
    os.unlink(f"{place.dest}/a")


def damage_link(place):
    os.unlink(f"{place.dest}/link")
    os.symlink("/etc/passwd", f"{place.dest}/link")


def damage_mode(place):
    os.chmod(f"{place.dest}/d/tool", 0o644)


def damage_top(place):
    os.chmod(f"{place.dest}/.", 0o777)


def damage_kind(place):
    os.unlink(f"{place.dest}/a")
    os.mkdir(f"{place.dest}/a")


@pytest.mark.parametrize("damage", [damage_unlink, damage_link, damage_mode, damage_top, damage_kind])
def test_every_damage_is_healed(place, source, damage):
    place.bring(source)
    damage(place)
    assert place.bring(source)["state"] == "planned"
    assert listing(place.dest) == listing(source)
    assert os.stat(place.dest).st_mode == os.stat(source).st_mode


def test_what_is_the_nodes_own_stays_until_deletes_are_asked_for(place, source):
    place.bring(source, ["runs/"])
    os.makedirs(f"{place.dest}/runs/1")
    for path in ("own", "d/own", "runs/1/log"):
        with open(f"{place.dest}/{path}", "w", encoding="utf-8") as stream:
            stream.write(path)
    os.unlink(source / "none")
    place.bring(source, ["runs/"])
    assert {path: place.text(path) for path in ("own", "d/own", "runs/1/log", "none")} == {
        "own": "own", "d/own": "d/own", "runs/1/log": "runs/1/log", "none": ""
    }  # fmt: skip
    place.bring(source, ["runs/"], delete=True)
    assert listing(place.dest).keys() == {*listing(source), "runs", "runs/1", "runs/1/log"}
    assert place.plan(source, ["runs/"], delete=True)["state"] == "current"


def test_a_folder_of_ones_own_is_not_replaced_by_a_file(place, source):
    place.bring(source)
    os.mkdir(f"{place.dest}/later")
    open(f"{place.dest}/later/mine", "w").close()
    (source / "later").write_text("file\n", encoding="utf-8")
    before = os.readlink(place.dest)
    with pytest.raises(agent.SyncError, match="set sync_delete, or move it away"):
        place.bring(source)
    assert os.readlink(place.dest) == before
    place.bring(source, delete=True)
    assert place.text("later") == "file\n"


def test_a_plain_folder_is_taken_over(place, source):
    os.makedirs(f"{place.dest}/d")
    for path, text in (("d/tool", "t\n"), ("d/mine", "m")):
        with open(f"{place.dest}/{path}", "w", encoding="utf-8") as stream:
            stream.write(text)
    plan = place.bring(source)
    assert plan["need"] == 2 * agent.CHUNK + 5 + 4
    assert os.path.islink(place.dest)
    assert place.text("d/mine") == "m"
    assert listing(place.dest).keys() == {*listing(source), "d/mine"}


def test_what_was_cut_off_goes_on_and_torn_pieces_are_not_trusted(place, source):
    place.plan(source)
    place.fill(source, limit=3)
    part = agent.Part(place.root, place.release)
    with open(f"{part.folder}/big", "r+b") as stream:
        stream.truncate(agent.CHUNK // 2)
    plan = place.plan(source)
    assert plan["state"] == "planned"
    place.fill(source)
    place.switch()
    assert listing(place.dest) == listing(source)


def test_a_piece_that_is_not_the_manifests_is_refused(place, source):
    place.plan(source)
    part = agent.Part(place.root, place.release)
    part.attach()
    assert not part.write(0, b"something else")
    assert 0 in part.missing()
    with pytest.raises(agent.SyncError, match="pieces are still missing"):
        place.switch()
    assert not os.path.lexists(place.dest)


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../b", "link/inside", "a\0b", "", "."])
def test_a_manifest_cannot_lead_out_of_the_tree(path):
    rows = [["link", "l", 0o777, 0, 0, [], "/etc"], [path, "f", 0o644, 0, 0, [], ""]]
    with pytest.raises(agent.SyncError, match="leads out of the tree"):
        agent.unpack(zlib.compress(json.dumps(rows).encode()))


def test_times_are_no_part_of_a_release(source):
    first = agent.pack(agent.scan(str(source), (), {})[0])[0]
    os.utime(source / "big")
    assert agent.pack(agent.scan(str(source), (), {})[0])[0] == first
    (source / "a").chmod(0o640)
    assert agent.pack(agent.scan(str(source), (), {})[0])[0] != first


def test_a_cache_saves_reading_but_never_hides_a_change(source, monkeypatch):
    old = time.time_ns() - 10**10
    for path, _info in agent.walk(str(source), agent.Excludes(())):
        os.utime(source / path, ns=(old, old), follow_symlinks=False)
    entries, cache = agent.scan(str(source), (), {})
    with open(source / "big", "r+b") as stream:
        stream.write(b"x")
    os.utime(source / "big", ns=(old, old))
    read = []
    real = agent.digests_of
    monkeypatch.setattr(agent, "digests_of", lambda path, size: read.append(os.path.basename(path)) or real(path, size))
    again, _cache = agent.scan(str(source), (), cache)
    assert read == ["big"]
    assert again != entries


def test_names_that_are_no_text_travel(place, tmp_path):
    top = os.fsencode(str(tmp_path / "odd"))
    os.mkdir(top)
    for name in (b"\xff\xfe", b"with\nnewline", "ümlaut".encode(), b"'quote\" $(x)"):
        with open(os.path.join(top, name), "wb") as stream:
            stream.write(name)
    place.bring(os.fsdecode(top))
    assert listing(place.dest) == listing(os.fsdecode(top))


def run_chain(places, source, commands, spools=()):
    """The first place gets the tree from a spool; the others by `serve` of the one before, or from spools of their own,
    all at the same time."""
    release = places[0].release
    spools = spools or [os.path.join(places[0].root, "spool"), *[""] * len(commands)]
    ways = [{"release": release, "spool": spool, "parents": parents} for spool, parents in zip(spools, [[], *commands])]
    workers = []
    for place, way in zip(places, ways):
        agent.write_json(f"{place.root}/way.json", way)
        workers.append(threading.Thread(target=agent.receive, args=(place.root,)))
        workers[-1].start()
    part = agent.Part(places[0].root, release)
    for number, chunk in enumerate(part.chunks):
        with open(os.path.join(source, chunk.entry.path), "rb") as stream:
            stream.seek(chunk.offset)
            data = stream.read(chunk.length)
        for spool in filter(None, spools):
            os.makedirs(spool, exist_ok=True)
            agent.write_file(f"{spool}/{number:08d}", agent.FRAME.pack(agent.DATA, number, len(data)) + data)
    for worker in workers:
        worker.join(60)
    return [agent.read_status(place.root) for place in places]


def server(place):
    return {
        "name": os.path.basename(os.path.dirname(place.root)),
        "command": [sys.executable, agent.__file__, "serve", place.root],
        "tree": None,
    }


def ask(place, seconds):
    """What `serve` answers whoever wants everything."""
    count = len(agent.Part(place.root, place.release).chunks)
    want = base64.b64encode(zlib.compress(b"\1" * count)).decode()
    request = json.dumps({"release": place.release, "tree": None, "want": want}).encode() + b"\n"
    return subprocess.run(server(place)["command"], input=request, capture_output=True, timeout=seconds, check=True)


@pytest.fixture
def three(tmp_path):
    found = []
    for name in ("n1", "n2", "n3"):
        (tmp_path / name).mkdir()
        found.append(Place(tmp_path / name))
    return found


def test_a_chain_of_processes_passes_on_what_it_gets(three, source):
    for place in three:
        place.plan(source)
    states = run_chain(three, source, [[server(three[0])], [server(three[1]), server(three[0])]])
    assert [state["state"] for state in states] == ["done"] * 3, states
    assert [state["source"] for state in states] == ["controller", "n1", "n2"]
    for place in three:
        place.switch()
        assert listing(place.dest) == listing(source)


@pytest.mark.parametrize(
    "dead",
    [
        ["sh", "-c", "exit 3"],
        ["sh", "-c", "echo 'Connection refused' >&2; exit 255"],
        ["sh", "-c", "head -c 99999 /dev/zero"],
    ],
)
def test_a_dead_parent_is_passed_over(three, source, dead):
    for place in three:
        place.plan(source)
    gone = {"name": "n9", "command": dead, "tree": None}
    states = run_chain(three, source, [[gone, server(three[0])], [gone, server(three[1])]])
    assert [state["state"] for state in states] == ["done"] * 3, states


def test_who_has_nobody_left_asks_the_controller_and_the_next_waits_for_it(three, source):
    for place in three:
        place.plan(source)
    gone = {"name": "n9", "command": ["sh", "-c", "exit 3"], "tree": None}
    spools = [f"{place.root}/spool" for place in three[:2]]
    states = run_chain(three[:2], source, [[gone]], spools)
    assert [(state["state"], state["source"]) for state in states] == [("done", "controller")] * 2, states


@pytest.mark.parametrize(
    ("state", "age", "left"),
    [
        ("running", agent.FROZEN + 5, True),
        ("running", 0, False),
        ("planned", agent.FROZEN + 5, False),  # it may be about to begin
    ],
)
def test_a_parent_whose_receiver_is_frozen_is_left(three, source, state, age, left):
    three[0].plan(source)
    agent.write_json(f"{three[0].root}/status.json", {"state": state, "have": 0, "above": 0, "at": time.time() - age})
    with pytest.raises(subprocess.TimeoutExpired) if not left else contextlib.nullcontext():
        done = ask(three[0], 3)
        assert b"its receiver has not moved for 35 s" in done.stdout


def test_damage_on_the_way_is_noticed(three, source):
    for place in three[:2]:
        place.plan(source)
    lying = f"import sys,struct; sys.stdin.readline(); sys.stdout.buffer.write({agent.MAGIC!r}+struct.pack('>BII',1,0,3)+b'bad')"
    liar = {"name": "liar", "command": [sys.executable, "-c", lying], "tree": None}
    states = run_chain(three[:2], source, [[liar]])
    assert states[1]["state"] == "failed"
    assert "came damaged" in states[1]["problem"]


def test_what_a_login_shell_prints_is_no_data(three, source):
    three[0].bring(source)
    three[1].plan(source)
    chatty = {
        **server(three[0]),
        "command": ["sh", "-c", 'echo Welcome to n1; exec "$@"', "sh", *server(three[0])["command"]],
    }
    agent.write_json(f"{three[1].root}/way.json", {"release": three[1].release, "spool": "", "parents": [chatty]})
    assert agent.receive(three[1].root) == 0


def test_a_node_that_has_the_tree_serves_it(three, source, tmp_path):
    three[0].bring(source)
    three[1].plan(source)
    agent.write_json(
        f"{three[1].root}/way.json", {"release": three[1].release, "spool": "", "parents": [server(three[0])]}
    )
    assert agent.receive(three[1].root) == 0
    from_source = {**server(three[0]), "tree": str(source)}
    three[2].plan(source)
    agent.write_json(f"{three[2].root}/way.json", {"release": three[2].release, "spool": "", "parents": [from_source]})
    assert agent.receive(three[2].root) == 0
    for place in three[1:]:
        place.switch()
        assert listing(place.dest) == listing(source)


def test_a_receiver_says_that_its_disk_is_full_on_a_full_disk(three, source, monkeypatch):
    """Others wait for that word, and nothing new can be written."""
    three[0].bring(source)
    three[1].plan(source)
    way = {"release": three[1].release, "spool": "", "parents": [server(three[0])]}
    agent.write_json(f"{three[1].root}/way.json", way)

    def full(*_anything):
        monkeypatch.setattr(agent, "write_json", full)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(agent.Part, "write", full)
    assert agent.receive(three[1].root) == 1
    said = agent.read_status(three[1].root)
    assert (said["state"], said["problem"]) == ("failed", "[Errno 28] No space left on device")


def test_a_server_says_that_it_gave_up(three, source):
    three[0].plan(source)
    agent.write_json(f"{three[0].root}/status.json", {"state": "failed", "problem": "disk full"})
    assert b"it gave up: disk full" in ask(three[0], 30).stdout
