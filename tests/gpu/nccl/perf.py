"""What NCCL's collectives take with Carillon, and with others beside it: perf.py NCCL_TESTS INSPECTOR LIBRARY.

NCCL_TESTS is the folder of the sources of NVIDIA/nccl-tests, INSPECTOR that of NCCL's profiler plug-in of that name
(ext-profiler/inspector); both are built there. all_reduce_perf runs on all GPUs of the host, a thread each, without
anything, with the library LIBRARY preloaded and as plug-in, with a plug-in that asks for no event, and with Inspector:
operations launched one by one, and those of CUDA graphs, of 8 B to MOST (512M). Runs take a few seconds and turns, for
BUDGET seconds (180) in all: a round is a run without anything, and beside it one of each way, but that the two other
plug-ins are in every tenth round only; every other round goes backwards. A run measures each size ten times. It is the
steady state that counts, and Carillon marks the first eight operations of a burst, and then one every two milliseconds:
so operations are launched in bursts of several milliseconds.

Of a run's times of a size the lower quartile counts: what else the machine does makes operations longer, never
shorter, and in bursts. A round gives the ratio of two runs that are seconds apart, so that what drifts falls out; what
differs from process to process stays, and only rounds tell of it. So the median of the rounds' ratios is shown, and
between which of them, sorted, the true one lies, whatever their distribution: bounds of the sign test, each of which
errs with 5 % for all lines together. That takes ten rounds; then it is from the least to the greatest. Lines of several
sizes are the same, of each round's geometric mean, in which the noise of sizes cancels.

Below a MiB the CPU sets the pace of operations that are launched one by one, and processes differ by tens of percent.
So these are measured in one process, too (paired.c), where bursts of calls through Carillon and of NCCL's own function
take turns, PAIRS times (100) for each size. What the plug-in alone costs is in both.

A line fails if its lower bound is above BAR (1.005), and passes if its upper bound is not; else, or with too few
rounds, it can't be told. The exit code is 1 if one fails.
"""
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from math import comb, exp, inf, log
from pathlib import Path

import paired

BAR = float(os.environ.get("BAR", 1.005))
BUDGET = float(os.environ.get("BUDGET", 180))
MOST = os.environ.get("MOST", "512M")
PAIRS = int(os.environ.get("PAIRS", 100))
ERRS = 0.05  # with which probability a bound is wrong, for all lines together
LARGE = 1 << 20  # bytes from which on the wires count more than the launch; lines of several sizes end there
EACH = 10
# Size, elements, type, reduction, root; us out of place, two bandwidths, errors; us in place.
LINE = re.compile(r"^\s+(\d+)\s+\d+\s+float\s+sum\s+-1\s+([\d.]+)\s+\S+\s+\S+\s+\S+\s+([\d.]+)", re.MULTILINE)
EMPTY = r"""
#include <stddef.h>
static int init(void **c, unsigned long id, int *mask, const char *n, int nodes, int ranks, int rank, void *log) {
  (void)id, (void)n, (void)nodes, (void)ranks, (void)rank, (void)log;
  return *c = NULL, *mask = 0;
}
static int start(void *c, void **handle, void *event) { return (void)c, (void)event, *handle = NULL, 0; }
static int stop(void *handle) { return (void)handle, 0; }
static int state(void *handle, int s, void *args) { return (void)handle, (void)s, (void)args, 0; }
static int end(void *c) { return (void)c, 0; }
struct { const char *name; void *init, *start, *stop, *state, *end; } ncclProfiler_v5 =
  {"empty", (void *)init, (void *)start, (void *)stop, (void *)state, (void *)end};
"""


def build(tests, inspector, work):
    """Builds all, and returns all_reduce_perf and the two plug-ins."""
    import nvidia.nccl
    wheel, home = Path(list(nvidia.nccl.__path__)[0]), work / "nccl"
    shutil.copytree(wheel, home)
    (home / "lib/libnccl.so").symlink_to("libnccl.so.2")
    cuda = Path(shutil.which("nvcc")).resolve().parent.parent
    make = ["make", "-s", f"-j{os.cpu_count()}", f"CUDA_HOME={cuda}", f"NCCL_HOME={home}"]
    capability = subprocess.check_output(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], text=True)
    sm = capability.split()[0].replace(".", "")
    quiet = {"stdout": subprocess.DEVNULL, "check": True}
    subprocess.run([*make, "-C", tests, "MPI=0", f"BUILDDIR={work}/tests",
                    f"NVCC_GENCODE=-gencode=arch=compute_{sm},code=sm_{sm}"], **quiet)
    subprocess.run([*make, "-C", inspector], **quiet)
    subprocess.run(["nvcc", "-O2", "-o", work / "paired", Path(__file__).with_name("paired.c"), f"-I{home}/include",
                    f"-L{home}/lib", "-lnccl", "-lpthread", "-ldl"], check=True)
    (work / "empty.c").write_text(EMPTY)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", work / "empty.so", work / "empty.c"], check=True)
    os.environ["LD_LIBRARY_PATH"] = f"{home}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"
    return work / "tests/all_reduce_perf", work / "empty.so", Path(inspector) / "libnccl-profiler-inspector.so"


def measure(program, gpus, graphs, env):
    """Returns what an operation takes, in us, by size: the lower quartile, of the mean of in and out of place."""
    common = ["-t", str(gpus), "-g", "1", "-f", "4", "-c", "0", "-N", "10"]
    if graphs:
        runs = [["-b", "8", "-e", MOST, "-n", "10", "-G", "2", "-w", "20"]]
    else:
        runs = [["-b", "8", "-e", str(LARGE // 2), "-n", "1000", "-w", "100"],
                ["-b", str(2 * LARGE), "-e", str(32 * LARGE), "-n", "200", "-w", "20"],
                ["-b", str(128 * LARGE), "-e", MOST, "-n", "100", "-w", "20"]]
    times = {}
    for args in runs:
        out = subprocess.run([program, *common, *args], env={**os.environ, **env}, check=True, stdout=subprocess.PIPE,
                             text=True)
        for size, outside, inside in LINE.findall(out.stdout):
            times.setdefault(int(size), []).append((float(outside) + float(inside)) / 2)
    return {size: sorted(some)[(len(some) - 1) // 4] for size, some in times.items()}


def bounds(ratios, errs):
    """Returns the bounds of the median, each of which errs with that probability; infinite if there are too few."""
    ratios, n = sorted(ratios), len(ratios)
    k, tail = -1, 0.5 ** n  # the probability that the median is beyond ratios[k + 1]
    while tail <= errs and k + 1 < n / 2:
        k += 1
        tail += comb(n, k + 1) * 0.5 ** n
    return (ratios[k], ratios[-1 - k]) if k >= 0 else (0, inf)


def verdict(low, high):
    return "FAIL" if low > BAR else "PASS" if high <= BAR else "can't be told"


def text(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def main(tests, inspector, library):
    gpus = len(subprocess.check_output(["nvidia-smi", "-L"], text=True).splitlines())
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory(dir="/dev/shm") as tapes:
        program, empty, peer = build(tests, inspector, Path(work))
        os.environ.update(NCCL_NVLS_ENABLE="0", CARILLON_TAPE_DIR=tapes)
        ways = {
            "without": {}, "Carillon": {"LD_PRELOAD": library, "NCCL_PROFILER_PLUGIN": library},
            "empty plug-in": {"NCCL_PROFILER_PLUGIN": str(empty)},
            "Inspector": {"NCCL_PROFILER_PLUGIN": str(peer), "NCCL_INSPECTOR_ENABLE": "1",
                          "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500", "NCCL_INSPECTOR_DUMP_DIR": work},
        }
        failed = pairs(Path(work) / "paired", gpus, ways["Carillon"])
        return report(rounds(program, gpus, ways), [*ways][1:], gpus) or failed


def pairs(program, gpus, env):
    """Prints what calls take in one process, with and without Carillon, and returns whether a line fails."""
    times = paired.measure(program, PAIRS, [8 << i for i in range(0, 17, 2)], env)
    print(f"all_reduce of float32 on {gpus} GPUs, eager, {PAIRS} pairs of bursts in one process")
    print(f"{'SIZE':>18}{'US':>10}{'CARILLON':>24}")
    failed = False
    for size, of in times.items():
        ratios = [through / own for own, through in of]
        low, high = bounds(ratios, ERRS / (2 * len(times)))
        failed |= verdict(low, high) == "FAIL"
        print(f"{text(size):>18}{statistics.median(own for own, _ in of):>10.2f}{statistics.median(ratios):10.3f} "
              f"({min(ratios):.3f}–{max(ratios):.3f})   {low:.3f} to {high:.3f}: {verdict(low, high)}")
    print()
    return failed


def rounds(program, gpus, ways):
    """Returns the rounds, eager and of graphs: what was measured by way."""
    runs = {False: [], True: []}
    began, longest = time.monotonic(), 0
    while time.monotonic() - began + longest < BUDGET or not runs[True]:
        since = time.monotonic()
        for graphs, of in runs.items():
            some = [*ways] if len(of) % EACH == 0 else [*ways][:2]
            of.append({way: measure(program, gpus, graphs, ways[way])
                       for way in (some if len(of) % 2 == 0 else some[::-1])})
        longest = max(longest, time.monotonic() - since)
    print(f"{len(of)} rounds in {time.monotonic() - began:.0f} s")
    return runs


def report(runs, others, gpus):
    """Prints the tables, and returns whether a line fails."""
    said = {"FAIL": [], "PASS": [], "can't be told": []}
    sizes = sorted(runs[False][0]["without"])
    parts = [[size] for size in sizes]
    parts += [part for part in ([s for s in sizes if s < LARGE], [s for s in sizes if s >= LARGE]) if len(part) > 1]
    errs = ERRS / (2 * len(parts))
    for graphs, of in runs.items():
        kind = "CUDA graphs" if graphs else "eager"
        print(f"\nall_reduce of float32 on {gpus} GPUs, {kind}")
        print(f"{'SIZE':>18}{'US':>10}" + "".join(f"{way.upper():>24}" for way in others))
        for part in parts:
            name = text(part[0]) if len(part) == 1 else f"{text(part[0])} – {text(part[-1])}"
            us = f"{statistics.median(r['without'][part[0]] for r in of):.2f}" if len(part) == 1 else ""
            line, behind = f"{name:>18}{us:>10}", ""
            for way in others:
                ratios = [exp(statistics.mean(log(r[way][size] / r["without"][size]) for size in part))
                          for r in of if way in r]
                line += f"{statistics.median(ratios):10.3f} ({min(ratios):.3f}–{max(ratios):.3f})"
                if way == others[0]:
                    low, high = bounds(ratios, errs)
                    behind = f"   {low:.3f} to {high:.3f}: {verdict(low, high)}"
                    said[verdict(low, high)].append(f"{name}, {kind}")
            print(line + behind)
    print(f"\nBehind each line between what {others[0]}'s ratio lies; the bar is {BAR}.")
    for what, names in said.items():
        if names:
            print(f"{what}: {'; '.join(names)}")
    return bool(said["FAIL"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
