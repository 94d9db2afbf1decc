"""Starts the ranks of a job: launch.py RANKS PROGRAM ARGUMENT…

Each rank is a Python process with the variables that torchrun sets, and its lines are printed behind its number. Unlike
torchrun, it leaves the others alone when one ends, so that what they do then can be seen. SIGTERM kills all. The exit
code is 0 if all ranks end well.
"""
import os
import signal
import subprocess
import sys
import threading


def main(size, program):
    ranks = []
    for rank in range(size):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
        ranks.append(subprocess.Popen([sys.executable, "-u"] + program, env={**os.environ, **place},
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"))

    def kill(*_):
        for process in ranks:
            process.kill()

    signal.signal(signal.SIGTERM, kill)

    def show(rank, process):
        for line in process.stdout:
            print(f"[{rank}] {line}", end="", flush=True)

    readers = [threading.Thread(target=show, args=r) for r in enumerate(ranks)]
    for reader in readers:
        reader.start()
    codes = [process.wait() for process in ranks]
    for reader in readers:
        reader.join()
    for rank, code in enumerate(codes):
        print(f"launch: rank {rank} (pid {ranks[rank].pid}) ended with {code}", flush=True)
    return 0 if not any(codes) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
