#!/usr/bin/env bash
# Runs Carillon's own collectives on the GPUs that there are: tests, hung jobs that are looked at while they hang and
# after they were killed, and how long all-reduce takes. The exit code is 0 if all is as it should be.
#
#   bash tests/gpu/engine.sh [PART…]   test, hang, bench, tune, sanitize or nccl; without any, the first three
#
# test      the engine's tests, by ranks that share GPU 0, and on two and on all GPUs where there are some; those of NCCL
#           as engine
# hang      in a job of three ranks, one makes no call, has a stream that is busy, or doesn't launch a graph
# bench     carillon bench --gpu with 2, 4 and 8 ranks, which share GPUs if there are less; beside NCCL if there are not
#           COLLECTIVES (all_reduce,all_gather,reduce_scatter) are measured
# tune      carillon tune, into OUT/tuning.json
# sanitize  two tests under compute-sanitizer's memcheck and racecheck
# nccl      the same with two ranks on two GPUs, and in the same table PyTorch's symmetric memory, and nccl-tests' figures
#           with buffers in symmetric windows; NCCL_TESTS has the sources. What nccl-tests print without windows, to see
#           that it is what the table says of NCCL
#
# A test that hangs says where each of its goroutines is, in a file in OUT; those of the engine are printed.
#
# The environment, and what holds without it:
#
#   BIN   where carillon, engine.test, device.test and nccl.test are (the repository's bin; make gpu makes them)
#   OUT   where results go (a new temporary folder)
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd "${BIN:-$here/../../bin}" && pwd)
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
export CUDA_DEVICE_MAX_CONNECTIONS=32 # a queue for each rank's stream, where ranks share a GPU
# NVLink's multicast is shared with other users of the machine.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
failed=0

# nccl is where PyTorch's NCCL is.
nccl() { python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])'; }

# within runs a program of tests for so many seconds: NAME SECONDS PROGRAM ARGUMENT… One that takes longer is told to say
# where its goroutines are (SIGQUIT), and killed some seconds later. All goes to a file; which tests there were, and of
# what failed the goroutines in the engine, to the output.
within() {
  local log="$out/$1.log" code
  timeout -s QUIT -k 10 "$2" "${@:3}" >"$log" 2>&1
  code=$?
  grep -E '^ *(---|FAIL|PASS|ok|panic)|^ +[^ ]+_test.go:' "$log"
  [ $code = 0 ] && return
  failed=1
  echo "FAILED with $code$([ $code = 124 ] || [ $code = 137 ] && echo ", it took more than $2 s"): $log"
  awk -v RS= -F '\n' '/^goroutine / && /carillon\/runtime\/(engine|ccl)/ {
    print $1
    for (i = shown = 2; i <= NF && shown < 8; i++) if ($i !~ /^\t|^runtime\./) { print "    " $i; shown++ }
  }' "$log"
}

part_test() {
  local tests='TestCollectives|TestTypes|TestLL128|TestMessages|TestMismatch|TestAbort|TestUnfinished|TestStreams|TestGraph'
  tests+='|TestSplit|TestPeerClosed|TestFinalized|TestEndBeside|TestWithoutPeer|TestCallAll|TestReach|TestProcesses'
  tests+='|TestOverdue'
  for visible in 0 $([ "$gpus" -gt 1 ] && echo 0,1) $([ "$gpus" -gt 2 ] && seq -s, 0 $((gpus - 1))); do
    echo "engine.test, GPUs $visible"
    CUDA_VISIBLE_DEVICES=$visible ENGINE_TEST_CUDA=libcuda.so.1 within "engine-$visible" 120 "$bin/engine.test" -test.v \
      -test.run "$tests"
  done
  echo "nccl.test, all GPUs"
  NCCL_TEST_CUDA=libcuda.so.1 NCCL_TEST_NCCL=$(nccl)/lib/libnccl.so.2 within nccl 120 "$bin/nccl.test" -test.v \
    -test.run 'TestCollectives|TestLL128|TestMessages|TestStreams|TestGraph'
}

# has looks for a verdict in a FILE, whose lines may be wrapped: FILE VERDICT.
has() { tr -s '[:space:]' ' ' <"$1" | grep -q "$2"; }

# said looks for a verdict: WHERE VERDICT, and the text in a file.
said() {
  if has "$3" "$2"; then echo "  $1: $2"; else echo "  $1: NOT $2"; cat "$3"; failed=1; fi
}

# hang ROLE VERDICT
hang() {
  local tapes log="$out/$1.log" job pids
  tapes=$(mktemp -d -p /dev/shm)
  echo "hang: $1"
  CARILLONTEST_DEVICE_ROLE=$1 CARILLONTEST_DEVICE_SHARED=1 CARILLON_STALL_THRESHOLD=1s \
    setsid "$bin/carillon" run -n 3 --tape-dir "$tapes" --job "$1" -- "$bin/device.test" >"$log" 2>&1 &
  job=$!
  for ((i = 0; i < 600; i++)); do
    timeout 10 "$bin/carillon" status "$tapes" >"$out/$1.status" 2>&1
    has "$out/$1.status" "$2" && break
  done
  said "carillon status" "$2" "$out/$1.status"
  timeout 10 "$bin/carillon" comms "$tapes" >"$out/$1.comms" 2>&1
  pids=$(sed -n 's/.*ready \([0-9]*\).*/\1/p' "$log")
  kill -9 $pids $job 2>/dev/null
  wait $job 2>/dev/null
  timeout 10 "$bin/carillon" postmortem "$tapes" >"$out/$1.postmortem" 2>&1
  said "carillon postmortem" "$2" "$out/$1.postmortem"
  rm -rf "$tapes"
}

part_hang() {
  hang absent not_entered
  hang busy stream_blocked
  hang graph 'not_entered.*has not entered all_reduce 3 on "world (graphs)"'
}

# bench RANKS ARGUMENT…
bench() {
  timeout -s QUIT -k 10 240 "$bin/carillon" bench --gpu "$1" --max 200 \
    --collective "${COLLECTIVES:-all_reduce,all_gather,reduce_scatter}" "${@:2}" 2>>"$out/bench.err" && return
  failed=1
  echo "FAILED: $out/bench.err"
  grep -v '^[[:space:]]' "$out/bench.err" | tail -3
}

part_bench() {
  local library=
  [ "$gpus" -gt 1 ] && library=$(nccl)/lib/libnccl.so.2
  for ranks in 2 4 8; do
    CARILLON_NCCL_LIB=$library bench $ranks --sizes 8:256M
  done
}

part_tune() { timeout 200 "$bin/carillon" tune -o "$out/tuning.json" || failed=1; }

part_sanitize() {
  # The driver maps tapes that are in memory alone, and refusals count as errors. Racecheck knows barriers, and warns of
  # words of shared memory that are stored with release and loaded with acquire, as load_shared does.
  for tool in memcheck 'racecheck --print-level error'; do
    echo "$tool"
    TMPDIR=/dev/shm CUDA_VISIBLE_DEVICES=0 ENGINE_TEST_CUDA=libcuda.so.1 timeout -k 10 300 \
      compute-sanitizer --tool $tool --error-exitcode 1 "$bin/engine.test" \
      -test.run 'TestCollectives/2_ranks|TestMessages' || failed=1
  done
}

part_nccl() {
  local nccl cuda build="$out/nccl-tests"
  nccl=$(nccl)
  cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
  mkdir -p "$build/lib" && cp -r "$nccl/include" "$build" && cp "$nccl"/lib/libnccl.so.2 "$build/lib" &&
    ln -sf libnccl.so.2 "$build/lib/libnccl.so" && cp -r "$NCCL_TESTS" "$build/src" &&
    make -s -j16 -C "$build/src" MPI=0 CUDA_HOME="$cuda" NCCL_HOME="$build" BUILDDIR="$build/bin" >"$out/make.log" 2>&1
  timeout 120 python3 "$here/symmetric.py" 2 >"$out/symmetric.jsonl" 2>"$out/symmetric.txt" || failed=1
  LD_LIBRARY_PATH=$build/lib timeout 180 python3 "$here/nccl/windows.py" "$build/bin" 2 \
    >"$out/windows.jsonl" 2>"$out/windows.txt" || failed=1
  cat "$out/symmetric.txt" "$out/windows.txt" # has also which of NCCL's kernels were symmetric
  CARILLON_NCCL_LIB=$build/lib/libnccl.so.2 bench 2 --sizes 8:1G \
    --beside "$out/symmetric.jsonl" --beside "$out/windows.jsonl"
  for graph in 0 20; do
    echo "nccl-tests' all_reduce_perf, graphs of $graph"
    LD_LIBRARY_PATH=$build/lib timeout 120 "$build/bin/all_reduce_perf" -t 2 -g 1 -b 8 -e 1G -f 8 -c 0 \
      -n $((graph ? graph : 200)) -w 5 -G $graph | grep float || failed=1
  done
}

for part in "${@:-test hang bench}"; do
  for each in $part; do
    echo "== $each"
    began=$SECONDS
    "part_$each"
    echo "== $each: $((SECONDS - began)) s"
  done
done
echo "what was said: $out"
exit $failed
