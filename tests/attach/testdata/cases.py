"""The programs of tests/fakenccl/programs that end the processes of some versions of NCCL, in Python.

    cases.py CASE RANKS

starts the ranks, and says which a signal killed. As launchers do, it ends the others then.
"""
import ctypes
import os
import signal
import subprocess
import sys
import threading

SUCCESS, INVALID_ARGUMENT, IN_PROGRESS, FLOAT, SUM = 0, 4, 7, 7, 0
ONE = ctypes.c_size_t(1)


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("blocking", ctypes.c_int)]


# NCCL, among what all of the process finds: a library that was preloaded comes first.
ctypes.CDLL("libnccl.so.2", mode=ctypes.RTLD_GLOBAL)
nccl, cuda = ctypes.CDLL(None), ctypes.CDLL("libcudart.so.12")


def must(*answers):
    assert all(a in (SUCCESS, IN_PROGRESS) for a in answers), answers


def done(comm):
    """Waits until NCCL has done what a call on a non-blocking communicator began."""
    state = ctypes.c_int(IN_PROGRESS)
    while state.value == IN_PROGRESS:
        must(nccl.ncclCommGetAsyncError(comm, ctypes.byref(state)))
    must(state.value)


def init(rank, size, unique):
    comm = ctypes.c_void_p()
    must(nccl.ncclCommInitRank(ctypes.byref(comm), size, unique, rank))
    return comm


def all_reduce(comm):
    one, total = ctypes.c_float(1), ctypes.c_float()
    must(nccl.ncclAllReduce(ctypes.byref(one), ctypes.byref(total), ONE, FLOAT, SUM, comm, None))
    return total


def case_double_destroy(rank, size, unique):
    """nccl#1482: every rank destroys its communicator twice, and makes another one, if it lives."""
    comm = init(rank, size, unique)
    must(nccl.ncclCommDestroy(comm))
    print(f"rank {rank}: destroying again: {nccl.ncclCommDestroy(comm)}")


def case_split_unfinished(rank, size, unique):
    """nccl#1605: ranks split a non-blocking communicator whose all-reduce is done on the GPU, and not asked for; then an
    all-gather from another thread, as autograd has it.
    """
    world, rails = ctypes.c_void_p(), ctypes.c_void_p()
    config = Config(Config.blocking.offset + 4, 0xcafebeef, 0, 0)
    must(nccl.ncclCommInitRankConfig(ctypes.byref(world), size, unique, rank, ctypes.byref(config)))
    done(world)
    total = all_reduce(world)
    while total.value != size:
        pass
    answer = INVALID_ARGUMENT  # the operation is done, but not yet its call
    while answer == INVALID_ARGUMENT:
        answer = nccl.ncclCommSplit(world, rank % 2, rank, ctypes.byref(rails), None)
    must(answer)
    done(world)

    def autograd():
        cuda.cudaSetDevice(rank)
        mine, everyone = ctypes.c_float(rank), (ctypes.c_float * (size // 2))()
        must(nccl.ncclAllGather(ctypes.byref(mine), everyone, ONE, FLOAT, rails, None))
        done(rails)
        cuda.cudaDeviceSynchronize()
        assert list(everyone) == [rank % 2 + 2 * i for i in range(size // 2)]

    thread = threading.Thread(target=autograd)
    thread.start()
    thread.join()
    must(nccl.ncclCommDestroy(rails), nccl.ncclCommDestroy(world))


def case_traffic(rank, size, unique):
    """The first rank sends to the last one, which is on another node, for a profiler plug-in to see."""
    comm, number = init(rank, size, unique), ctypes.c_float(rank)
    must(nccl.ncclGroupStart())
    if rank == 0:
        must(nccl.ncclSend(ctypes.byref(number), ONE, FLOAT, size - 1, comm, None))
    if rank == size - 1:
        must(nccl.ncclRecv(ctypes.byref(number), ONE, FLOAT, 0, comm, None))
    must(nccl.ncclGroupEnd())
    total = all_reduce(comm)  # nobody ends before all proxies are done
    must(cuda.cudaDeviceSynchronize())
    assert total.value == size
    must(nccl.ncclCommDestroy(comm))


def case_held(rank, size, unique):
    """The last rank joins when the standard input ends."""
    if rank == size - 1:
        sys.stdin.read()
    comm = init(rank, size, unique)
    total = all_reduce(comm)
    must(cuda.cudaDeviceSynchronize())
    assert total.value == size
    must(nccl.ncclCommDestroy(comm))


def start(case, size):
    unique = UniqueId()
    must(nccl.ncclGetUniqueId(ctypes.byref(unique)))
    ranks, failed = {}, False
    for rank in range(size):
        env = dict(os.environ)
        if "NODES" in env:  # two nodes, half of the ranks each
            env["NCCL_HOSTID"] = f"{env['NODES']}{rank // (size // 2)}"
        command = [sys.executable, __file__, case, str(size), str(rank), bytes(unique).hex()]
        process = subprocess.Popen(command, env=env)
        ranks[process.pid] = process
    while ranks:
        pid, status = os.wait()
        del ranks[pid]
        code = os.waitstatus_to_exitcode(status)
        if code < 0 and code != -signal.SIGKILL:
            print(f"killed by signal {-code}", flush=True)
        if code and not failed:
            for process in ranks.values():
                process.kill()
        failed |= code != 0
    return failed


def main(case, size, rank=None, unique=None):
    if rank is None:
        return start(case, int(size))
    return globals()["case_" + case](int(rank), int(size), UniqueId.from_buffer_copy(bytes.fromhex(unique)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
