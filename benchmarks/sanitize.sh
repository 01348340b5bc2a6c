#!/usr/bin/env bash
# NVIDIA's compute-sanitizer over every form of the kernels: memcheck, racecheck, initcheck, synccheck.
#
#   benchmarks/sanitize.sh [LOG]          TOOLS="racecheck synccheck" PYTHON=python3 benchmarks/sanitize.sh
#
# A tool must report what is planted for it (tests/sanitizer/planted.py), and nothing in tests/sanitizer/test_every_form.py.
# Status 0 if both hold for each tool, 1 if not, 3 where there is no compute-sanitizer. LOG gets all that the tools say; without it, a
# temporary file.
set -uo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
tools=${TOOLS:-memcheck racecheck initcheck synccheck}
log=${1:-$(mktemp)}
reported=86 # the status of a program in which a tool found something
limit=${LIMIT:-240} # seconds for every form
forms=("$python" -m pytest -q -p no:cacheprovider -m gpu tests/sanitizer/test_every_form.py)

# Each tensor in an allocation of its own: inside torch's pool, memory past a tensor is another tensor's.
export PYTORCH_NO_CUDA_MEMORY_CACHING=1 OMP_NUM_THREADS=1 PYTHONPATH=".${PYTHONPATH:+:$PYTHONPATH}"

command -v compute-sanitizer >/dev/null || { echo "error: compute-sanitizer is not on the PATH" >&2; exit 3; }
: >"$log"
say() { printf '%s\n' "$*" | tee -a "$log"; }

# `run TOOL LIMIT PROGRAM...`: status and seconds of a program under a tool; its output goes to the log.
run() {
  local tool=$1 limit=$2 began=$SECONDS
  shift 2
  local options=(--tool "$tool" --error-exitcode "$reported" --target-processes all)
  # numba-cuda asks the driver for functions that this one may not have: no fault of a kernel's.
  [ "$tool" = memcheck ] && options+=(--report-api-errors no --padding 4096)
  timeout "$limit" compute-sanitizer "${options[@]}" "$@" >>"$log" 2>&1
  status=$?
  seconds=$((SECONDS - began))
}

say "# $(compute-sanitizer --version | grep -i version | head -1), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"
say "# without a sanitizer, which compiles every form"
"${forms[@]}" >>"$log" 2>&1 || { say "FAILED: the calls themselves, see the log"; tail -5 "$log"; exit 1; }

failed=0
for tool in $tools; do
  say "# $tool: planted"
  run "$tool" 60 "$python" tests/sanitizer/planted.py "$tool"
  if [ "$status" = "$reported" ]; then say "$tool: what is planted is reported ($seconds s)"; else
    say "FAILED: $tool says nothing of what is planted (status $status)"
    failed=1
  fi
  say "# $tool: every form"
  run "$tool" "$limit" "${forms[@]}"
  if [ "$status" = 0 ]; then say "$tool: nothing in $(grep -oE '[0-9]+ passed' "$log" | tail -1 | cut -d' ' -f1) calls ($seconds s)"; else
    say "FAILED: $tool over every form (status $status; 124: no end in $limit s)"
    failed=1
  fi
done
exit "$failed"
