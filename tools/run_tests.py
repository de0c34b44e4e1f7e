"""Runs every test program and script of a suite and ends with the line "N passed, N failed".

usage: run_tests.py --build build/release --suite test|check [--only NAME ...]

test:   the C++ tests, the checks of the tree itself, the clients that talk to a real server.
check:  test, and the sanitizer and g++ builds, every kernel family this machine has, the long simulation, the fuzzers, the slow
        clients, and all of ../shared/golden where that folder is present.
A program that crashes or prints no result counts as one failure."""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # A start that fails leaves at once and does not wait for the thread that loads.
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0",
}


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []

    def add(self, name, passed, failed, skipped, seconds, output=""):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        verdict = "ok" if failed == 0 else "FAILED"
        print(f"{verdict:7}{name:46}{passed:6} passed{failed:4} failed{skipped:4} skipped {seconds:7.1f} s", flush=True)
        if failed:
            self.failures.append(name)
            print(output[-6000:], flush=True)


def run(command, env=None, timeout=1800):
    start = time.time()
    try:
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout)
        return done.returncode, done.stdout, time.time() - start
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
        return 124, output.decode(errors="replace") + f"\nstopped after {timeout} s", time.time() - start


def gtest(totals, name, program, env=None, timeout=1800, arguments=()):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        code, output, seconds = run([str(program), f"--gtest_output=json:{report}", *arguments], env, timeout)
        passed = failed = skipped = 0
        if report.exists():
            for suite in json.loads(report.read_text()).get("testsuites", []):
                for case in suite["testsuite"]:
                    if case.get("failures"):
                        failed += 1
                    elif case.get("result") == "SKIPPED":
                        skipped += 1
                    elif case.get("status") == "RUN":
                        passed += 1
        if code != 0 and failed == 0:
            failed = 1
        totals.add(name, passed, failed, skipped, seconds, output)
        for line in re.findall(r"Skipped\n|SKIP: .*", output):
            if line.startswith("SKIP"):
                print("       ", line.strip())


def script(totals, name, command, env=None, timeout=1800):
    code, output, seconds = run(command, env, timeout)
    totals.add(name, int(code == 0), int(code != 0), 0, seconds, output)


def pytest(totals, name, paths, env, timeout=1800):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *paths]
        code, output, seconds = run(command, env, timeout)
        passed = failed = skipped = 0
        if report.exists():
            for suite in xml.parse(report).getroot().iter("testsuite"):
                total = int(suite.get("tests", 0))
                bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
                skip = int(suite.get("skipped", 0))
                passed, failed, skipped = passed + total - bad - skip, failed + bad, skipped + skip
        if code not in (0, 5) and failed == 0:
            failed = 1
        totals.add(name, passed, failed, skipped, seconds, output)


def programs(build):
    return sorted((ROOT / build / "bin").glob("*_test"))


def tree_checks(totals, build):
    for tool in ("check_layers.py", "check_invariants.py", "tidy.py"):
        script(totals, f"tools/{tool}", [sys.executable, f"tools/{tool}"])
    script(totals, "tools/check_isa_symbols.sh", ["tools/check_isa_symbols.sh", build])
    if list((ROOT / "tests/tools").glob("test_*.py")):
        pytest(totals, "tests/tools", ["tests/tools"], {})


def clients(totals, build, marker, env=None):
    env = {"AVOCET_BIN": str(ROOT / build / "bin/avocet"), "PYTHONPATH": str(ROOT / "tests/clients"), **(env or {})}
    pytest(totals, f"tests/clients ({marker}) on {build}", ["tests/clients", "-m", marker], env, timeout=2400)


def isa_names(build):
    code, output, _ = run([str(ROOT / build / "bin/avocet"), "inspect", "--isas"])
    return output.split() if code == 0 else []


def suite_test(totals, build):
    tree_checks(totals, build)
    for program in programs(build):
        gtest(totals, program.name, program)
    clients(totals, build, "not slow")


def suite_check(totals, build):
    suite_test(totals, build)
    clients(totals, build, "slow")
    for isa in isa_names(build):
        for name in ("model_test", "golden_test", "engine_test"):
            program = ROOT / build / "bin" / name
            if program.exists():
                gtest(totals, f"{name} AVOCET_ISA={isa}", program, {"AVOCET_ISA": isa})
    if (ROOT.parent / "shared/golden").is_dir():
        env = {"AVOCET_GOLDEN": str(ROOT.parent / "shared/golden")}
        for name in ("golden_test", "tokenizer_test", "template_test"):
            program = ROOT / build / "bin" / name
            if program.exists():
                gtest(totals, f"{name} on ../shared/golden", program, env)
    gtest(totals, "sim_test, a million steps", ROOT / build / "bin/sim_test", {"AVOCET_SIM_STEPS": "1000000"}, timeout=3000)
    for other in ("dev", "asan", "tsan"):
        for program in programs(f"build/{other}"):
            gtest(totals, f"{other}: {program.name}", program, SANITIZER_ENV, timeout=3000)
    for other in ("asan", "tsan"):
        clients(totals, f"build/{other}", "not slow", SANITIZER_ENV)
    for program in sorted((ROOT / "build/fuzz/bin").glob("*_fuzz")):
        corpus = ROOT / "tests/fuzz/corpus" / program.name
        seeds = [str(corpus)] if corpus.is_dir() else []
        with tempfile.TemporaryDirectory() as scratch:
            script(totals, f"fuzz: {program.name}, 10 s",
                   [str(program), "-max_total_time=10", "-timeout=10", f"-artifact_prefix={scratch}/", scratch, *seeds], SANITIZER_ENV)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--suite", choices=["test", "check"], default="test")
    arguments = parser.parse_args()
    totals = Totals()
    start = time.time()
    (suite_test if arguments.suite == "test" else suite_check)(totals, arguments.build)
    if totals.failures:
        print("failed:", ", ".join(totals.failures))
    print(f"{time.time() - start:.0f} s, {totals.skipped} skipped")
    print(f"{totals.passed} passed, {totals.failed} failed")
    return 1 if totals.failed or totals.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
