"""nccl#1605, as split_unfinished.c: ranks split a non-blocking communicator whose all-reduce is done on the GPU, and not
asked for; then an all-gather from another thread, as autograd has it. split_unfinished.py RANKS starts them, and says
which a signal killed.
"""
import ctypes
import subprocess
import sys
import threading

SUCCESS, INVALID_ARGUMENT, IN_PROGRESS, FLOAT = 0, 4, 7, 7


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("blocking", ctypes.c_int)]


def load():
    """NCCL, among what all of the process finds: a library that was preloaded comes first."""
    ctypes.CDLL("libnccl.so.2", mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(None), ctypes.CDLL("libcudart.so.12")


def done(nccl, comm):
    """Waits until NCCL has done what a call on the communicator began."""
    state = ctypes.c_int(IN_PROGRESS)
    while state.value == IN_PROGRESS:
        assert nccl.ncclCommGetAsyncError(comm, ctypes.byref(state)) == SUCCESS
    assert state.value == SUCCESS


def run(rank, size, unique):
    nccl, cuda = load()
    world, rails = ctypes.c_void_p(), ctypes.c_void_p()
    config = Config(Config.blocking.offset + 4, 0xcafebeef, 0, 0)
    answer = nccl.ncclCommInitRankConfig(ctypes.byref(world), size, unique, rank, ctypes.byref(config))
    assert answer in (SUCCESS, IN_PROGRESS)
    done(nccl, world)
    one, total = ctypes.c_float(1), ctypes.c_float()
    answer = nccl.ncclAllReduce(ctypes.byref(one), ctypes.byref(total), ctypes.c_size_t(1), FLOAT, 0, world, None)
    assert answer in (SUCCESS, IN_PROGRESS)
    while total.value != size:
        pass
    answer = INVALID_ARGUMENT  # the operation is done, but not yet its call
    while answer == INVALID_ARGUMENT:
        answer = nccl.ncclCommSplit(world, rank % 2, rank, ctypes.byref(rails), None)
    assert answer in (SUCCESS, IN_PROGRESS)
    done(nccl, world)

    def autograd():
        cuda.cudaSetDevice(rank)
        mine, everyone = ctypes.c_float(rank), (ctypes.c_float * (size // 2))()
        answer = nccl.ncclAllGather(ctypes.byref(mine), everyone, ctypes.c_size_t(1), FLOAT, rails, None)
        assert answer in (SUCCESS, IN_PROGRESS)
        done(nccl, rails)
        cuda.cudaDeviceSynchronize()
        assert list(everyone) == [rank % 2 + 2 * i for i in range(size // 2)]

    thread = threading.Thread(target=autograd)
    thread.start()
    thread.join()
    assert nccl.ncclCommDestroy(rails) == SUCCESS
    assert nccl.ncclCommDestroy(world) == SUCCESS


def main(size):
    unique = UniqueId()
    assert load()[0].ncclGetUniqueId(ctypes.byref(unique)) == SUCCESS
    ranks = [subprocess.Popen([sys.executable, __file__, str(size), str(rank), bytes(unique).hex()])
             for rank in range(size)]
    codes = [rank.wait() for rank in ranks]
    for rank, code in enumerate(codes):
        if code < 0:
            print(f"rank {rank} was killed by signal {-code}")
    return any(codes)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        sys.exit(main(int(sys.argv[1])))
    run(int(sys.argv[2]), int(sys.argv[1]), UniqueId.from_buffer_copy(bytes.fromhex(sys.argv[3])))
