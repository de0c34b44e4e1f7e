"""Runs every benchmark and prints JSON lines: what, value, roof of the same run, ratio, goal where one is stated.

usage: bench.py --build build/release [NAME ...]      NAME: linear, delta_rule, ... (bench/micro/NAME_bench.cpp) or steps (bench/steps.py)"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    below = []
    commands = {program.name.removesuffix("_bench"): [str(program)] for program in sorted((ROOT / arguments.build / "bin").glob("*_bench"))}
    commands["steps"] = [sys.executable, "bench/steps.py", "--build", arguments.build]
    for name, command in commands.items():
        if arguments.names and name not in arguments.names:
            continue
        print(f"== {name}", file=sys.stderr, flush=True)
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            print(line, end="", flush=True)
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(row, dict) and "goal" in row and "ratio" in row and row["ratio"] < row["goal"]:
                below.append(row)
        if process.wait() != 0:
            print(f"{name} failed with {process.returncode}", file=sys.stderr)
            return 1
    for row in below:
        print(f"below its goal: {row.get('what', row)} {row['ratio']:.3f} < {row['goal']}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
