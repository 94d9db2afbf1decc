"""What a call costs more with Carillon: paired.py PAIRED LIBRARY.

The program PAIRED (paired.c) runs with the library preloaded that is NCCL's profiler plug-in, too. Bursts of calls
through Carillon and of NCCL's own function take turns there, PAIRS times (400), so that processes, which differ by tens
of percent, don't count; what the plug-in alone costs is in both. One rank calls in place, which leaves nothing for the
GPU to do. Exits with 1 if the median of the pairs' differences is above BAR, which is 100 ns if the environment doesn't
say otherwise.
"""
import os
import statistics
import subprocess
import sys
import tempfile

BAR = float(os.environ.get("BAR", 100))


def measure(program, pairs, sizes, env):
    """Returns the microseconds of a call of NCCL's own and through Carillon, of all pairs, by size."""
    out = subprocess.run([program, str(pairs), *map(str, sizes)], env={**os.environ, **env}, check=True,
                         stdout=subprocess.PIPE, text=True)
    times = {}
    for line in out.stdout.splitlines():
        size, *us = line.split()
        times[int(size)] = list(zip(map(float, us[::2]), map(float, us[1::2])))
    return times


def main(program, library):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as tapes:
        env = {"CUDA_VISIBLE_DEVICES": "0", "CARILLON_TAPE_DIR": tapes, "LD_PRELOAD": library,
               "NCCL_PROFILER_PLUGIN": library}
        pairs = measure(program, os.environ.get("PAIRS", 400), [4], env)[4]
        if not any(files for _, _, files in os.walk(tapes)):
            sys.exit("paired: no process has left a tape")
    own = statistics.median(1000 * us for us, _ in pairs)
    more = sorted(1000 * (through - us) for us, through in pairs)
    print(f"ncclAllReduce, 1 rank, 4 bytes, in place: {own:.0f} ns a call, and with Carillon "
          f"{statistics.median(more):.0f} more (half of {len(pairs)} pairs: {more[len(more) // 4]:.0f} to "
          f"{more[3 * len(more) // 4]:.0f})")
    failed = statistics.median(more) > BAR
    print(f"{'FAIL' if failed else 'PASS'}: the bar is {BAR:.0f}")
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
