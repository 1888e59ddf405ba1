from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "lab"))
from lab import Lab


@pytest.fixture(scope="session")
def lab():
    return Lab("bench")


@pytest.fixture(scope="session")
def hosts(lab):
    return lab.hosts()
