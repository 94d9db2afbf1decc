#!/usr/bin/env bash
# Runs jobs on NCCL under carillon attach, well ones and ones with a fault, and prints a table of what Carillon said of
# them; and what it costs a call. Takes eight minutes at most. The exit code is 0 if all is as it should be.
#
#   bash tests/gpu/run.sh [CASE…]              PyTorch on the GPUs that there are; one is enough
#   bash tests/gpu/run.sh --fake DIR [CASE…]   programs without PyTorch, on the fake NCCL that lies in DIR
#   bash tests/gpu/run.sh --perf DIR           what operations take with Carillon and with others, on two GPUs or more;
#                                              DIR has the sources of NVIDIA's nccl-tests and, below ext-profiler/, of
#                                              NCCL's profiler plug-ins (nccl/perf.py has the environment)
#
# A CASE is the beginning of a case's name, or "cost"; without any, all are run. It needs python3 and gcc; on GPUs,
# PyTorch, the NCCL that is PyTorch's, and nvcc. The environment, and what holds without it:
#
#   BIN        where carillon and libcarillon-nccl.so are (the repository's bin)
#   OUT        where table.txt, logs.tar.gz and tapes.tar.gz go (a new temporary folder)
#   JOBS       how many cases run at a time (3)
#   LIMIT      seconds for all cases together (400)
#   WITHIN     seconds from the threshold to the verdict, at most (1)
#   PAIRS      how often the cost of a call is measured with and without Carillon (400)
#   BAR        nanoseconds that a call may cost more, at most, on a processor that nobody slows down (100)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
bin=$(cd "${BIN:-$root/bin}" && pwd)
out=${OUT:-$(mktemp -d)}
work=$(mktemp -d)
tapes=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) # in memory, as by default: GPUs write on them
mkdir -p "$out" "$work/cases"
export PYTHONDONTWRITEBYTECODE=1 # the repository stays as it is
trap 'rm -rf "$work" "$tapes"' EXIT

bare=()
if [ "${1:-}" = --fake ]; then
  fake=$(cd "$2" && pwd)
  shift 2
  bare=(--bare)
  export LD_LIBRARY_PATH=$fake
  compile=(cc -D_GNU_SOURCE -O2 -I"$root/tests/fakenccl/src" -I"$root/runtime/attach")
  libraries=(-L"$fake" -l:libnccl.so.2 -l:libcudart.so.12)
else
  nccl=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])')
  compile=(nvcc -O2 -I"$nccl/include")
  libraries=(-L"$nccl/lib" -l:libnccl.so.2 -Xlinker -rpath -Xlinker "$nccl/lib")
  # Ranks meet over loopback, and leave NVLink's multicast alone, which other users of the machine share. What hangs
  # stays as it is: nothing of PyTorch's ends it. Results don't depend on what cuBLAS finds free.
  export NCCL_SOCKET_IFNAME=lo NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 \
    TORCH_NCCL_ASYNC_ERROR_HANDLING=0 TORCH_NCCL_ENABLE_MONITORING=0 OMP_NUM_THREADS=1 CUBLAS_WORKSPACE_CONFIG=:4096:8
  # With many connections each, a GPU has room for a few processes; for the next one it is "out of memory".
  unset CUDA_DEVICE_MAX_CONNECTIONS
fi

if [ ${#bare[@]} -eq 0 ]; then
  cc -shared -fPIC -O2 -D_GNU_SOURCE -o "$work/cut.so" "$here/nccl/cut.c" -ldl
  export CUT_LIBRARY=$work/cut.so
fi

if [ "${1:-}" = --perf ]; then
  inspector=$(find "$2" -path '*/ext-profiler/inspector' -print -quit)
  python3 "$here/nccl/perf.py" "$2/nccl-tests" "$inspector" "$bin/libcarillon-nccl.so" 2>&1 | tee "$out/perf.txt"
  exit "${PIPESTATUS[0]}"
fi

failed=0
{
  if [ $# -eq 0 ] || [[ " $* " == *" cost "* ]]; then # first, while nothing else runs
    "${compile[@]}" -o "$work/paired" "$here/nccl/paired.c" "${libraries[@]}" -lpthread -ldl &&
      python3 "$here/nccl/paired.py" "$work/paired" "$bin/libcarillon-nccl.so" || failed=1
    echo
  fi
  python3 "$here/nccl/table.py" --carillon "$bin/carillon" --out "$work/cases" --tapes "$tapes" "${bare[@]}" \
    --jobs "${JOBS:-3}" --within "${WITHIN:-1}" --limit "${LIMIT:-400}" -- "$@" || failed=1
  echo "$failed" >"$work/failed"
} 2>&1 | tee "$out/table.txt"
tar -czf "$out/logs.tar.gz" -C "$work" --exclude=inductor cases
tar -czSf "$out/tapes.tar.gz" -C "$tapes" .
echo "what the jobs printed, and their tapes: $out"
exit "$(cat "$work/failed")"
