#!/usr/bin/env python3
"""A small training on NCCL, to be looked at by Carillon: python3 train.py --help has the commands.

With PyTorch and GPUs it is DistributedDataParallel. Without, the same training calls libnccl.so.2 by itself, with
ctypes. It starts its ranks, unless a launcher did, such as torchrun.
"""
import argparse
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time

FEATURES, SAMPLES, STEPS, RATE = 8, 4096, 40, 0.1


def samples(rank):
    """A rank's part of the data. The weights that training is to find are 1, 2, 3 …"""
    draw = random.Random(rank)
    xs = [[draw.gauss(0, 1) for _ in range(FEATURES)] for _ in range(SAMPLES)]
    return xs, [sum((i + 1) * x for i, x in enumerate(row)) for row in xs]


def with_pytorch(rank, world, begin):
    import torch
    gpu = int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count()
    torch.cuda.set_device(gpu)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=world)
    xs, ys = (torch.tensor(part, device="cuda") for part in samples(rank))
    torch.manual_seed(1)
    model = torch.nn.Linear(FEATURES, 1, bias=False, device="cuda")
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        begin(step)
        optimizer.zero_grad()
        ((model(xs).squeeze() - ys) ** 2).mean().backward()  # averages the gradients of all ranks
        optimizer.step()
    weights = model.module.weight.flatten().tolist()
    torch.distributed.destroy_process_group()
    return weights


def with_ctypes(rank, world, begin):
    nccl, cuda = load_nccl()
    must(cuda.cudaSetDevice(int(os.environ.get("LOCAL_RANK", rank))))
    unique = (ctypes.c_byte * 128)()  # ncclUniqueId
    if rank == 0:
        must(nccl.ncclGetUniqueId(unique))
    unique = UniqueId.from_buffer_copy(from_first(rank, world, bytes(unique)))
    comm, stream, buffer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    must(nccl.ncclCommInitRank(ctypes.byref(comm), world, unique, rank))
    must(cuda.cudaStreamCreate(ctypes.byref(stream)))
    gradient = (ctypes.c_float * FEATURES)()
    size = ctypes.c_size_t(ctypes.sizeof(gradient))
    must(cuda.cudaMalloc(ctypes.byref(buffer), size))
    xs, ys = samples(rank)
    weights = [0.0] * FEATURES
    for step in range(STEPS):
        begin(step)
        errors = [sum(w * x for w, x in zip(weights, row)) - y for row, y in zip(xs, ys)]
        gradient[:] = [2 / SAMPLES * sum(e * row[i] for e, row in zip(errors, xs)) for i in range(FEATURES)]
        must(cuda.cudaMemcpyAsync(buffer, gradient, size, 4, stream))
        must(nccl.ncclAllReduce(buffer, buffer, ctypes.c_size_t(FEATURES), 7, 4, comm, stream))  # float32, average
        must(cuda.cudaMemcpyAsync(gradient, buffer, size, 4, stream))
        must(cuda.cudaStreamSynchronize(stream))
        weights = [w - RATE * g for w, g in zip(weights, gradient)]
    must(nccl.ncclCommDestroy(comm))
    return weights


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


def must(result):
    if result != 0:
        raise RuntimeError(f"NCCL or CUDA answered {result}")


def from_first(rank, world, data):
    """What rank 0 has, at every rank."""
    at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        with socket.create_server(at) as server:
            for _ in range(world - 1):
                with server.accept()[0] as peer:
                    peer.sendall(data)
        return data
    while True:
        try:
            with socket.create_connection(at) as server:
                return server.makefile("rb").read()
        except ConnectionRefusedError:  # rank 0 isn't there yet
            time.sleep(0.05)


def load_nccl():
    """NCCL and CUDA's runtime, as ctypes has them."""
    try:
        return ctypes.CDLL("libnccl.so.2"), ctypes.CDLL("libcudart.so.12")
    except OSError as e:
        sys.exit(f"""train.py: there is neither PyTorch with a GPU nor NCCL: {e}
Without a GPU, Carillon's tests have an NCCL that computes on the host:
  make -C tests/fakenccl && export LD_LIBRARY_PATH=$PWD/tests/fakenccl/build/2.28.9""")


def gpus():
    """How many GPUs PyTorch can use; 0 without PyTorch."""
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count()


def start_ranks(world):
    """Starts this program once for each rank. Returns its exit code."""
    with socket.socket() as port:  # one that is free, and stays so until rank 0 listens there
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("127.0.0.1", 0))
        env = dict(os.environ, WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port.getsockname()[1]))
        ranks = [subprocess.Popen([sys.executable] + sys.argv, env=dict(env, RANK=str(rank))) for rank in range(world)]
        for ends in signal.SIGTERM, signal.SIGINT:
            signal.signal(ends, lambda *_: sys.exit(1))
        try:
            return max(abs(process.wait()) for process in ranks)
        finally:
            for process in ranks:
                process.kill()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog="""examples:
  carillon attach -- python3 examples/pytorch/train.py
  carillon attach -- python3 examples/pytorch/train.py --hold-up 1    and meanwhile: carillon status
  carillon attach -- torchrun --nproc-per-node 8 examples/pytorch/train.py
""")
    parser.add_argument("--ranks", type=int, help="how many to start (default: 2; with PyTorch, one a GPU)")
    parser.add_argument("--hold-up", type=int, metavar="RANK", help="have this rank sleep for a minute half-way")
    args = parser.parse_args()
    if "RANK" not in os.environ:
        if not gpus():
            load_nccl()  # or says once why the ranks can't
        sys.exit(start_ranks(args.ranks or gpus() or 2))
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends it without a traceback
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def begin(step):
        if step == STEPS // 2 and rank == args.hold_up:
            print(f"rank {rank} sleeps; pid {os.getpid()}", flush=True)
            time.sleep(60)

    weights = (with_pytorch if gpus() else with_ctypes)(rank, world, begin)
    text = " ".join(map(str, weights))
    print(f"rank {rank} of {world}: the weights are {text}\n", end="", flush=True)  # in one write


if __name__ == "__main__":
    main()
