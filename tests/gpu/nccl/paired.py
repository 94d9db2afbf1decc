"""What a call costs more with Carillon: paired.py PAIRED LIBRARY.

The program PAIRED (paired.c) runs with the library preloaded that is NCCL's profiler plug-in, too. Bursts of calls
through Carillon and of NCCL's own function take turns there, PAIRS times (400), so that processes, which differ by tens
of percent, don't count; what the plug-in alone costs is in both. One rank calls in place, which leaves nothing for the
GPU to do.

On a shared host, a processor whose other hardware thread works for somebody else takes up to twice as long for all of
it. So the program runs on each processor in turn, on 16 of them at most, and what counts is the one on which NCCL's own
call is quickest. Exits with 1 if the median of the pairs' differences there is above BAR, which is 100 ns if the
environment doesn't say otherwise.
"""
import os
import statistics
import subprocess
import sys
import tempfile

BAR = float(os.environ.get("BAR", 100))
BYTES = 4


def measure(program, pairs, sizes, env, processor=None):
    """Returns the microseconds of a call of NCCL's own and through Carillon, of all pairs, by size."""
    pin = None if processor is None else lambda: os.sched_setaffinity(0, {processor})
    out = subprocess.run([program, str(pairs), *map(str, sizes)], env={**os.environ, **env}, check=True,
                         stdout=subprocess.PIPE, text=True, preexec_fn=pin)
    times = {}
    for line in out.stdout.splitlines():
        size, *us = line.split()
        times[int(size)] = list(zip(map(float, us[::2]), map(float, us[1::2])))
    return times


def cost(program, processor, env):
    """Returns the nanoseconds of a call of NCCL's own, and how many more it takes through Carillon: quartiles."""
    pairs = measure(program, os.environ.get("PAIRS", 400), [BYTES], env, processor)[BYTES]
    return (statistics.median(1000 * own for own, _ in pairs),
            statistics.quantiles(1000 * (through - own) for own, through in pairs))


def main(program, library):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as tapes:
        env = {"CUDA_VISIBLE_DEVICES": "0", "CARILLON_TAPE_DIR": tapes, "LD_PRELOAD": library,
               "NCCL_PROFILER_PLUGIN": library}
        runs = [cost(program, processor, env) for processor in sorted(os.sched_getaffinity(0))[:16]]
        if not any(files for _, _, files in os.walk(tapes)):
            sys.exit("paired: no process has left a tape")
    runs.sort()
    print(f"ncclAllReduce, 1 rank, {BYTES} bytes, in place, on {len(runs)} processors in turn:")
    for which, (own, (low, more, high)) in [("quickest", runs[0]), ("slowest", runs[-1])]:
        print(f"  on the {which} {own:.0f} ns a call, and with Carillon {more:.0f} more (half of the pairs: "
              f"{low:.0f} to {high:.0f})")
    failed = runs[0][1][1] > BAR
    print(f"{'FAIL' if failed else 'PASS'}: the bar is {BAR:.0f}, on the quickest")
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
