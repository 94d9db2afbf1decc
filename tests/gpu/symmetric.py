"""What all-reduce (float32, sum) takes on PyTorch's symmetric memory, as lines of JSON for carillon bench --beside.

    python3 symmetric.py [RANKS [LARGEST]]    two ranks, and 64 MiB, unless said otherwise; a GPU for each rank

Times are of the slowest rank, the median of batches, by the GPU's clock: call by call, and in a CUDA graph; of each the
faster of one shot and two. Its multimem kernels are left out, since they need NVLink's multicast, which other users of
a machine share. The standard error has both, and NCCL in the same processes through PyTorch.
"""

import json
import os
import socket
import statistics
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
import torch.multiprocessing

BATCH, BATCHES = 100, 10
ONE_SHOT_MOST = 1 << 20  # bytes; it moves all data to all ranks
TWO_SHOT_LEAST = 1 << 10  # each rank has a share of whole vectors


def took(put, calls):
    """Microseconds of one of the calls that put makes, of the slowest rank."""
    times = []
    for _ in range(BATCHES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        dist.barrier()
        torch.cuda.synchronize()
        put()  # ranks begin some microseconds after each other, and the host takes some to launch a graph
        begin.record()
        put()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / calls)
    slowest = torch.tensor(statistics.median(times), device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def measure(call):
    """Microseconds of a call: eager, and in a graph."""

    def batch():
        for _ in range(BATCH):
            call()

    batch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        batch()
    graph.replay()
    return took(batch, BATCH), took(graph.replay, BATCH)


def run(rank, ranks, port, largest):
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks, device_id=device)
    group = dist.group.WORLD.group_name
    buffer = symmetric.empty(largest // 4, dtype=torch.float32, device=device)
    symmetric.rendezvous(buffer, group)
    plain = torch.zeros(largest // 4, device=device)
    if rank == 0:
        print(f"{ranks} ranks, microseconds: eager and in a graph, PyTorch {torch.__version__}", file=sys.stderr)
        print(f"{'bytes':>12} {'one shot':>21} {'two shots':>21} {'NCCL':>21}", file=sys.stderr)
    size = 8
    while size <= largest:
        part, theirs = buffer[: size // 4], plain[: size // 4]
        calls = [None, None, lambda: dist.all_reduce(theirs)]
        if size <= ONE_SHOT_MOST:
            calls[0] = lambda: torch.ops.symm_mem.one_shot_all_reduce(part, "sum", group)
        if size >= TWO_SHOT_LEAST:
            calls[1] = lambda: torch.ops.symm_mem.two_shot_all_reduce_(part, "sum", group)
        columns = []
        for i, call in enumerate(calls):
            if call and i < 2:  # is it right?
                part.fill_(1)
                torch.cuda.synchronize()
                dist.barrier()
                if not (call() == ranks).all().item():
                    raise SystemExit(f"the sum of {size} bytes is wrong")
                dist.barrier()
                part.zero_()
            columns.append(measure(call) if call else None)
        if rank == 0:
            text = (f"{c[0]:10.2f} {c[1]:10.2f}" if c else f"{'-':>10} {'-':>10}" for c in columns)
            print(f"{size:12} {' '.join(text)}", file=sys.stderr, flush=True)
            eager, graph = (round(1000 * min(times)) for times in zip(*filter(None, columns[:2])))
            print(json.dumps({"library": "symmetric memory", "collective": "all_reduce", "ranks": ranks, "bytes": size,
                              "eager": {"p50_ns": eager}, "graph": {"p50_ns": graph}}), flush=True)
        size *= 8
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 64 << 20
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
    os.environ["NCCL_NVLS_ENABLE"] = "0"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    torch.multiprocessing.spawn(run, (count, free, most), nprocs=count)
