"""Clients talk to the real binary over a real socket; see server_process.py."""


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: minutes; runs in ./dev check only")
