"""What a call costs more with Carillon: overhead.py OVERHEAD LIBRARY.

The program OVERHEAD (overhead.c) is run without Carillon, with the library preloaded, and with the library preloaded
that is NCCL's profiler plug-in, too: in this order and back again, ROUNDS times (3), so that what changes on the
machine meanwhile counts for all. Prints the least and the median of all batches; exits with 1 if the least is more than
BAR more, which is 100 ns if the environment doesn't say otherwise.
"""
import os
import statistics
import subprocess
import sys
import tempfile

BAR = float(os.environ.get("BAR", 100))


def main(program, library):
    preloaded = {"LD_PRELOAD": library}
    ways = {
        "without": {}, "preloaded": preloaded,
        "preloaded, and plug-in": {**preloaded, "NCCL_PROFILER_PLUGIN": library},
    }
    figures = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as tapes:
        for way in ([*ways] + [*ways][::-1]) * int(os.environ.get("ROUNDS", 3)):
            env = {**os.environ, "CARILLON_TAPE_DIR": tapes, **ways[way]}
            out = subprocess.run([program], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
            figures[way].append([float(number) for number in out.split()])
        if not any(files for _, _, files in os.walk(tapes)):
            sys.exit("overhead: no process has left a tape")
    print(f"{'ncclAllReduce, 1 rank, 4 bytes':36}{'least':>10}{'more':>8}{'median':>10}{'more':>8}   ns a call")
    worst = 0
    for kind, at in (("in place", 0), ("with a copy", 2)):
        for way, runs in figures.items():
            least, median = min(run[at] for run in runs), statistics.median(run[at + 1] for run in runs)
            if way == "without":
                base = least, median
            worst = max(worst, least - base[0])
            print(f"{kind + ', ' + way:36}{least:10.0f}{least - base[0]:8.0f}{median:10.0f}{median - base[1]:8.0f}")
    print(f"{'PASS' if worst <= BAR else 'FAIL'}: the least is at most {worst:.0f} ns more; the bar is {BAR:.0f}")
    return worst > BAR


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
