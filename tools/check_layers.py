"""LAYER-1: includes in src/ obey the order of folders, and each third-party library is included behind its one fence.

usage: check_layers.py [ROOT]     prints every violation; exit status 1 if there is one"""

import pathlib
import re
import sys

# Folder -> the folders it may include besides itself (docs/ARCHITECTURE.md).
MAY_INCLUDE = {
    "base": [],
    "device": ["base"],
    "comm": ["base", "device"],
    "ops": ["base", "device"],
    "weights": ["base", "device", "ops"],
    "tokenizer": ["base"],
    "multimodal": ["base"],
    "model": ["base", "device", "comm", "ops", "weights", "multimodal/media_input.h"],
    "engine": ["base", "device", "comm", "ops", "model"],
    "grammar": ["base", "tokenizer", "engine"],
    "server": ["base", "tokenizer", "multimodal", "engine", "grammar"],
    "cli": ["base", "device", "tokenizer", "comm", "ops", "multimodal", "weights", "model", "engine", "server"],
}
# Third-party header pattern -> where it may stand (prefixes of paths below src/).
FENCES = {
    r"hwloc": ["device/"],
    r"numa\.h": ["device/"],
    r"mpi\.h": ["comm/"],
    r"immintrin\.h": ["ops/isa/"],
    r"cpuid\.h": ["device/cpu_features.cpp"],
    r"pcre2|unicode/": ["tokenizer/"],
    r"vips|libav|libsw": ["multimodal/"],
    r"boost/|openssl/|prometheus/": ["server/"],
    r"CLI/": ["cli/"],
    r"yaml-cpp/": ["cli/"],
    r"spdlog/": ["base/log.cpp"],
    r"nlohmann/": ["tokenizer/", "grammar/", "server/", "cli/", "weights/", "model/"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def violations(root):
    src = root / "src"
    for path in sorted(p for p in src.rglob("*") if p.suffix in (".h", ".cpp")):
        name = path.relative_to(src).as_posix()
        folder = name.split("/")[0]
        for quote, target in INCLUDE.findall(path.read_text()):
            if quote == '"':
                other = target.split("/")[0]
                if not (src / target).exists():
                    yield f"src/{name}: \"{target}\" is no file below src/"
                elif other != folder and other not in MAY_INCLUDE.get(folder, []) and target not in MAY_INCLUDE.get(folder, []):
                    yield f"src/{name}: LAYER-1: {folder} may not include {target}"
                continue
            for pattern, fences in FENCES.items():
                if re.match(pattern, target) and not any(name.startswith(fence) for fence in fences):
                    yield f"src/{name}: <{target}> may stand only in {', '.join(fences)}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    found = list(violations(root))
    print("\n".join(found) if found else "includes obey the order of folders (LAYER-1)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
