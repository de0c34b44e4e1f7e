"""Small rules of style that a machine can read: sizes, tabs, bare TODOs, commented-out code, banned names.

usage: tidy.py [ROOT]     prints every violation; exit status 1 if there is one"""

import pathlib
import re
import sys

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
BANNED = {
    r"\bstd::cout\b": "print through base/log.h, or std::fputs in cli",
    r"\bstd::endl\b": "use \\n",
    r"(?<![\w_])assert\(": "use CHECK or DCHECK",
    r"\bnew (?!\()[A-Z]\w*\(": "own through values or unique_ptr",
    r"\busing namespace std\b": "name what is used",
}
# A unique_ptr of a class whose constructor is private takes a naked new.
ALLOWED_NEW = re.compile(r"unique_ptr<[^;]*\(new |shared_ptr<[^;]*\(new |return std::unique_ptr|std::make_unique")
FUNCTION_BAN = re.compile(r"\bstd::function\b")
DATA_TABLES = ("flag_table",)  # functions that are one long table


def lines_of_functions(lines):
    """(first line, length) of every function body: a line at column 0 or inside a class that opens a brace and is no type or namespace."""
    depth = 0
    start = None
    start_depth = 0
    for number, line in enumerate(lines, 1):
        code = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', '""', line).split("//")[0]
        opens = code.count("{")
        if start is None and opens > code.count("}") and re.search(r"\)\s*(const)?\s*(noexcept)?\s*(override)?\s*(:.*)?(->.*)?\{\s*$", code):
            start, start_depth = number, depth
        depth += opens - code.count("}")
        if start is not None and depth <= start_depth:
            yield start, number - start + 1
            start = None


def violations(root):
    for folder in ("src", "bench", "tests"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in (".h", ".cpp")):
            name = path.relative_to(root).as_posix()
            text = path.read_text()
            lines = text.splitlines()
            if len(lines) > FILE_LINES_MAX:
                yield f"{name}: {len(lines)} lines, at most {FILE_LINES_MAX}"
            if folder == "src" and not any(table in name for table in DATA_TABLES):
                for start, length in lines_of_functions(lines):
                    if length > FUNCTION_LINES_MAX:
                        yield f"{name}:{start}: a function of {length} lines, at most {FUNCTION_LINES_MAX}"
            for number, line in enumerate(lines, 1):
                if "\t" in line:
                    yield f"{name}:{number}: a tab"
                if re.search(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))", line):
                    yield f"{name}:{number}: a bare TODO, write TODO(#123)"
                if path.suffix == ".cpp" and re.match(r"^\s*//.*;\s*$", line) and re.match(r"^\s*//\s*(if|for|return|auto|const|std::|[a-z_]+\()", line):
                    yield f"{name}:{number}: commented-out code"
                if folder == "src":
                    for pattern, advice in BANNED.items():
                        if re.search(pattern, line.split("//")[0]) and not ALLOWED_NEW.search(line):
                            yield f"{name}:{number}: {pattern} is banned: {advice}"
                    if name.startswith(("src/ops/", "src/model/")) and FUNCTION_BAN.search(line):
                        yield f"{name}:{number}: std::function on the hot path, use FunctionRef"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    found = list(violations(root))
    print("\n".join(found) if found else "the tree is tidy")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
