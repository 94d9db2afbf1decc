"""What NCCL's collectives take with Carillon, and with others beside it: perf.py NCCL_TESTS INSPECTOR LIBRARY.

NCCL_TESTS is the folder of the sources of NVIDIA/nccl-tests, INSPECTOR that of NCCL's profiler plug-in of that name
(ext-profiler/inspector); both are built there. all_reduce_perf runs on all GPUs of the host, a thread each, without
anything, with the library LIBRARY preloaded and as plug-in, with a plug-in that asks for no event, and with Inspector,
in this order and back again, ROUNDS times (3). Prints what an operation takes without anything, for each size from 8 B
to MOST (512M), and the ratios of the others to that: the median of the rounds, each against the run beside it, and between
which they are. Once for operations that are launched one by one, once for those of CUDA graphs. Exits with 1 if a
median is above BAR (1.005).
"""
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BAR = float(os.environ.get("BAR", 1.005))
ROUNDS = int(os.environ.get("ROUNDS", 3))
SIZES = ["-b", "8", "-e", os.environ.get("MOST", "512M"), "-f", "4"]
LINE = re.compile(r"^\s+(\d+)\s+\d+\s+float\s+sum\s+-1\s+([\d.]+)", re.MULTILINE)  # size, and us out of place
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
    (work / "empty.c").write_text(EMPTY)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", work / "empty.so", work / "empty.c"], check=True)
    os.environ["LD_LIBRARY_PATH"] = f"{home}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"
    return work / "tests/all_reduce_perf", work / "empty.so", Path(inspector) / "libnccl-profiler-inspector.so"


def measure(program, gpus, graphs, env):
    """Returns what an operation takes, in us, by size."""
    args = ["-t", str(gpus), "-g", "1", *SIZES, "-c", "0"]
    args += ["-n", "20", "-w", "5", "-G", "20"] if graphs else ["-n", os.environ.get("TIMES", "400"), "-w", "100"]
    out = subprocess.run([program, *args], env={**os.environ, **env}, check=True, stdout=subprocess.PIPE, text=True)
    return {int(size): float(us) for size, us in LINE.findall(out.stdout)}


def text(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def main(tests, inspector, library):
    gpus = len(subprocess.check_output(["nvidia-smi", "-L"], text=True).splitlines())
    worst = 0
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory(dir="/dev/shm") as tapes:
        program, empty, peer = build(tests, inspector, Path(work))
        os.environ.update(NCCL_NVLS_ENABLE="0", CARILLON_TAPE_DIR=tapes)
        ways = {
            "without": {}, "Carillon": {"LD_PRELOAD": library, "NCCL_PROFILER_PLUGIN": library},
            "empty plug-in": {"NCCL_PROFILER_PLUGIN": str(empty)},
            "Inspector": {"NCCL_PROFILER_PLUGIN": str(peer), "NCCL_INSPECTOR_ENABLE": "1",
                          "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500", "NCCL_INSPECTOR_DUMP_DIR": work},
        }
        for graphs in (False, True):
            runs = {way: [] for way in ways}
            for way in ([*ways] + [*ways][::-1]) * ROUNDS:
                runs[way].append(measure(program, gpus, graphs, ways[way]))
            print(f"\nall_reduce of float32 on {gpus} GPUs, {'CUDA graphs' if graphs else 'eager'}")
            print(f"{'SIZE':>8}{'US':>10}" + "".join(f"{way.upper():>24}" for way in list(ways)[1:]))
            for size in sorted(runs["without"][0]):
                line = f"{text(size):>8}{statistics.median(run[size] for run in runs['without']):10.2f}"
                for way in list(ways)[1:]:
                    ratios = sorted(run[size] / base[size] for run, base in zip(runs[way], runs["without"]))
                    median = statistics.median(ratios)
                    worst = max(worst, median) if way == "Carillon" else worst
                    line += f"{median:10.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f})"
                print(line)
    print(f"\n{'PASS' if worst <= BAR else 'FAIL'}: an operation takes {worst:.3f} times as long with Carillon at most; "
          f"the bar is {BAR}")
    return worst > BAR


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
