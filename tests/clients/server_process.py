"""Starts the real binary for a test and stops it afterwards. AVOCET_BIN names the binary (default build/release/bin/avocet)."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("AVOCET_BIN", str(ROOT / "build/release/bin/avocet"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ServerProcess:
    """A running server: .url, .pid, .log() and .stop(), which returns the exit status."""

    def __init__(self, *arguments, env=None, wait=True):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log", delete=False)
        command = [BINARY, "serve", *map(str, arguments), "--host", "127.0.0.1", "--port", str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                                        stdout=self._log, stderr=subprocess.STDOUT)
        self.pid = self.process.pid
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds=60):
        deadline = time.time() + seconds
        while time.time() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.log()}")
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(self.url + "/health", timeout=2):
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the server was not ready after {seconds} s:\n{self.log()}")

    def log(self):
        return pathlib.Path(self._log.name).read_text(errors="replace")

    def cpu_seconds(self):
        """User and system time of the process so far."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        return int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self, seconds=30):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        os.unlink(self._log.name)
        return self.process.returncode


@contextlib.contextmanager
def server(*arguments, env=None):
    running = ServerProcess(*arguments, env=env)
    try:
        yield running
    except BaseException:
        running.stop()
        raise
    ended_before = running.process.poll() is not None
    code = running.stop()
    assert ended_before or code == 0, f"the server ended with {code}"  # a sanitizer's finding included
