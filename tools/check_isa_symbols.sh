#!/usr/bin/env bash
# An object compiled for a wide instruction set must not define weak symbols: the linker could take its copy of an inline function for
# the whole program, and an older CPU would then meet instructions it lacks.
# usage: check_isa_symbols.sh BUILD_FOLDER
set -euo pipefail
build=${1:?usage: check_isa_symbols.sh BUILD_FOLDER}
found=0
count=0
while IFS= read -r object; do
  count=$((count + 1))
  if weak=$(nm -C "$object" | grep -E ' [VWu] '); then
    echo "$object defines weak symbols:"
    echo "$weak"
    found=1
  fi
done < <(find "$build" -path '*ops/isa/kernels_*.o')
if [ "$count" -eq 0 ]; then
  echo "no kernel objects below $build: build it first"
  exit 1
fi
[ "$found" -eq 0 ] && echo "$count kernel objects without weak symbols"
exit "$found"
