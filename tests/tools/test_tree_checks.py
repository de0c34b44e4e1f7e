"""The checks of the tree can fail: each is shown a small tree with one violation."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(tool, tree):
    done = subprocess.run([sys.executable, ROOT / "tools" / tool, tree], capture_output=True, text=True)
    return done.returncode, done.stdout


def write(tree, name, text):
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_layer_1_an_upward_include_is_named(tmp_path):
    write(tmp_path, "src/engine/a.h", "")
    write(tmp_path, "src/model/b.h", '#include "engine/a.h"\n')
    code, output = run("check_layers.py", tmp_path)
    assert code == 1 and "LAYER-1: model may not include engine/a.h" in output


def test_a_library_outside_its_fence_is_named(tmp_path):
    write(tmp_path, "src/engine/a.cpp", "#include <boost/asio.hpp>\n")
    code, output = run("check_layers.py", tmp_path)
    assert code == 1 and "boost/asio.hpp" in output


def test_an_orderly_tree_passes(tmp_path):
    write(tmp_path, "src/base/a.h", "")
    write(tmp_path, "src/model/b.h", '#include "base/a.h"\n#include <vector>\n')
    assert run("check_layers.py", tmp_path)[0] == 0
    assert run("tidy.py", tmp_path)[0] == 0


def test_tidy_names_long_functions_and_banned_words(tmp_path):
    body = "int F() {\n" + "  x();\n" * 80 + "}\n"
    write(tmp_path, "src/base/long.cpp", body)
    write(tmp_path, "src/base/print.cpp", "void G() { std::cout << 1; }\n\tint tab;\n// TO" + "DO later\n")
    code, output = run("tidy.py", tmp_path)
    assert code == 1
    assert "a function of 82 lines" in output and "std::cout" in output and "a tab" in output and "bare TODO" in output


def test_an_unchecked_invariant_is_named(tmp_path):
    write(tmp_path, "docs/ARCHITECTURE.md", "PLAN-2")
    write(tmp_path, "src/a.cpp", "")
    write(tmp_path, "tests/a.cpp", "// PLAN-2")
    code, output = run("check_invariants.py", tmp_path)
    assert code == 1 and "PLAN-2 stands in no CHECK or contract of src/" in output
