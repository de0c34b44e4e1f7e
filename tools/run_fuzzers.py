"""Runs every libFuzzer program for a while each; a finding is kept in build/fuzz/findings and fails the run.

usage: run_fuzzers.py --build build/fuzz --seconds 600 [NAME ...]"""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/fuzz")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("names", nargs="*", help="only these programs")
    arguments = parser.parse_args()
    bad = 0
    for program in sorted((ROOT / arguments.build / "bin").glob("*_fuzz")):
        if arguments.names and program.name not in arguments.names:
            continue
        corpus = ROOT / arguments.build / "corpus" / program.name
        findings = ROOT / arguments.build / "findings"
        corpus.mkdir(parents=True, exist_ok=True)
        findings.mkdir(parents=True, exist_ok=True)
        seeds = ROOT / "tests/fuzz/corpus" / program.name
        command = [str(program), f"-max_total_time={arguments.seconds}", "-timeout=10", f"-artifact_prefix={findings}/{program.name}-", str(corpus)]
        if seeds.is_dir():
            command.append(str(seeds))
        print(f"== {program.name}, {arguments.seconds} s", flush=True)
        bad += subprocess.run(command, env={**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1"}).returncode != 0
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
