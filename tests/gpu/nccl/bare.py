"""A job on NCCL's own functions, without PyTorch, on the fake NCCL: what its devices hold is the host's memory.

As a program, it trains, and each rank prints a hash of the result. As a module it is what faults.py needs of a job.
"""
import ctypes
import hashlib
import os
import sys
import time

ctypes.CDLL("libnccl.so.2", mode=ctypes.RTLD_GLOBAL)  # the functions are found there, or in what is preloaded
nccl, cuda, libc = ctypes.CDLL(None), ctypes.CDLL("libcudart.so.12"), ctypes.CDLL("libc.so.6")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if "RANKS_OF_NODE" in os.environ:
    os.environ["NCCL_HOSTID"] = f"node{rank // int(os.environ['RANKS_OF_NODE'])}"
comm, stream = ctypes.c_void_p(), ctypes.c_void_p()
memory = []  # operations are in flight when functions return
FLOAT, SUM = 7, 0


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_ubyte * 128)]


def must(result):
    if result:
        sys.exit(f"NCCL or CUDA answered {result}")


def numbers(count):
    memory.append((ctypes.c_float * count)())
    return memory[-1]


def meet():
    """Before the communicator: nothing is needed for it."""


def send_nothing():
    """Nothing leaves this rank from now on."""
    os.environ["FAKENCCL_CUT"] = str(rank)


def join(_=None):
    """Makes the communicator of all ranks. Rank 0 leaves the unique id in a file for the others."""
    unique, path = UniqueId(), os.path.join(os.environ["STORE"], "unique-id")
    if rank == 0:
        must(nccl.ncclGetUniqueId(ctypes.byref(unique)))
        with open(path + ".new", "wb") as f:
            f.write(bytes(unique))
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as f:
        unique = UniqueId.from_buffer_copy(f.read())
    must(nccl.ncclCommInitRank(ctypes.byref(comm), size, unique, rank))
    must(cuda.cudaStreamCreate(ctypes.byref(stream)))


def all_reduce(count, data=None):
    data = data or numbers(count)
    must(nccl.ncclAllReduce(data, data, ctypes.c_size_t(count), FLOAT, SUM, comm, stream))


def all_gather(count):
    must(nccl.ncclAllGather(numbers(count), numbers(count * size), ctypes.c_size_t(count), FLOAT, comm, stream))


def pass_on(count=1024):
    """Sends to the next rank, and receives from the one before."""
    exchange([((rank + 1) % size, (rank - 1) % size)], count)


def all_to_all(count=1024):
    """What ncclAlltoAll is, which not every version has."""
    exchange([(r, r) for r in range(size)], count)


def swap(receive_first, count=1024):
    """Exchanges messages with another rank, one after the other."""
    calls = [nccl.ncclRecv, nccl.ncclSend]
    for call in calls if receive_first else reversed(calls):
        must(call(numbers(count), ctypes.c_size_t(count), FLOAT, rank ^ 1, comm, stream))


def exchange(pairs, count):
    """Sends to the first rank of each pair, and receives from the second, in a group."""
    must(nccl.ncclGroupStart())
    for to, sender in pairs:
        must(nccl.ncclSend(numbers(count), ctypes.c_size_t(count), FLOAT, to, comm, stream))
        must(nccl.ncclRecv(numbers(count), ctypes.c_size_t(count), FLOAT, sender, comm, stream))
    must(nccl.ncclGroupEnd())


def synchronize():
    must(cuda.cudaStreamSynchronize(stream))


def busy(seconds):
    """Keeps the stream busy: what is launched behind it begins later."""
    must(cuda.cudaLaunchHostFunc(stream, libc.sleep, ctypes.c_void_p(seconds)))


def destroy():
    """Destroys the communicator, and returns what destroys it once more, which returns NCCL's answer."""
    must(nccl.ncclCommDestroy(comm))
    return lambda: nccl.ncclCommDestroy(comm)


def train():
    join()
    weights = numbers(64)
    for step in range(20):
        gradient = numbers(64)
        for i in range(64):
            gradient[i] = weights[i] + (rank + 1) / (step + i + 1)
        all_reduce(64, gradient)
        synchronize()
        for i in range(64):
            weights[i] -= 0.01 * gradient[i]
    print("result", hashlib.sha256(bytes(weights)).hexdigest()[:16])
    destroy()


if __name__ == "__main__":
    train()
