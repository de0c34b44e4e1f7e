"""Clients talk to the real binary over a real socket; see server_process.py."""

import os

import pytest

from server_process import server


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: minutes; runs in ./dev check only")


@pytest.fixture(scope="session")
def base_url():
    """A server with the demo model as "demo", 2048 tokens long: a fresh one, or the one that AVOCET_BASE_URL names."""
    if url := os.environ.get("AVOCET_BASE_URL"):
        yield url.rstrip("/")
        return
    with server("models/demo", "--served-model-name", "demo", "--max-model-len", "2048") as running:
        yield running.url
