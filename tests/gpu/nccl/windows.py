"""What nccl-tests measure with buffers in symmetric windows, as lines of JSON for carillon bench --beside.

    python3 windows.py FOLDER RANKS [LARGEST]    FOLDER has the programs of nccl-tests; 1G unless said otherwise

Each collective is measured call by call and in graphs. Whether NCCL runs its symmetric kernels (ncclSymkDevKernel_…)
for such buffers it says itself: with NCCL_DEBUG_SUBSYS=TUNING rank 0 prints "[Symmetric]: N Bytes -> Kernel NAME" for
each that it plans (src/scheduler/symmetric_sched.cc of 2.28). It is asked in a run of its own, since that takes time.
The kernels go to the standard error, and sizes that have none are left out: what was measured there is NCCL without
them. Exits with 1 if a collective has none at all. Ranks of one process have those for small sizes only if
NCCL_SINGLE_PROC_MEM_REG_ENABLE=1, which is set here.
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
# Size, elements, type, reduction, root; us out of place, two bandwidths, errors; us in place.
LINE = re.compile(r"^\s+(\d+)\s+\d+\s+float\s+\w+\s+-1\s+([\d.]+)\s+\S+\s+\S+\s+\S+\s+([\d.]+)", re.MULTILINE)
SYMMETRIC = re.compile(r"\[Symmetric\]: (\d+) Bytes -> Kernel (\S+)")


def run(program, ranks, largest, *more, **env):
    """Returns what a program of nccl-tests prints: sizes from 8 bytes on, times 8 each."""
    args = [program, "-t", str(ranks), "-g", "1", "-b", "8", "-e", largest, "-f", "8", "-c", "0", "-R", "2", *more]
    env = {**os.environ, "NCCL_SINGLE_PROC_MEM_REG_ENABLE": "1", **env}
    return subprocess.run(args, check=True, text=True, stdout=subprocess.PIPE, env=env).stdout


def times(text):
    """Returns nanoseconds by size: the shorter of in and out of place."""
    return {int(size): round(1000 * min(float(out), float(inside))) for size, out, inside in LINE.findall(text)}


def main(folder, ranks, largest="1G"):
    ranks, failed = int(ranks), False
    for collective in COLLECTIVES:
        program = Path(folder) / f"{collective}_perf"
        said = run(program, ranks, largest, "-n", "1", "-w", "0", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="TUNING")
        kernels = {int(count): name for count, name in SYMMETRIC.findall(said)}
        eager = times(run(program, ranks, largest, "-n", "200", "-w", "20"))
        graph = times(run(program, ranks, largest, "-n", "20", "-w", "5", "-G", "20"))
        none = True
        for size in eager:
            count = size if collective == "all_reduce" else size // ranks  # what NCCL counts
            name = kernels.get(count)
            print(f"{collective} of {size} bytes: {name or 'no symmetric kernel'}", file=sys.stderr)
            if name and size in graph:
                none = False
                print(json.dumps({"library": "NCCL windows", "collective": collective, "ranks": ranks, "bytes": size,
                                  "eager": {"p50_ns": eager[size]}, "graph": {"p50_ns": graph[size]}}), flush=True)
        failed |= none
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
