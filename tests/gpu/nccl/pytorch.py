"""A job on PyTorch and NCCL: pytorch.py CASE. Each rank prints a hash of what it computed, and of which parts.

As a module it is what faults.py needs of a job. Several ranks share a GPU where there are fewer GPUs than ranks: for
NCCL, each is on a node of its own then (NCCL_HOSTID).
"""
import ctypes
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
gpus = torch.cuda.device_count()
on_node = min(gpus, int(os.environ.get("RANKS_OF_NODE", gpus)))
os.environ["NCCL_HOSTID"] = f"node{rank // on_node}"
device = torch.device("cuda", rank % gpus)
torch.cuda.set_device(device)
torch.use_deterministic_algorithms(True)


def meet(**options):
    if os.environ.get("TORCH_NCCL_USE_COMM_NONBLOCKING") == "1":
        options["device_id"] = device  # the communicator is made here, and doesn't block
    dist.init_process_group("nccl", **options)


def join(count=1):
    """Makes the communicator of all ranks, which PyTorch does when it is needed first: for so many numbers."""
    dist.all_reduce(torch.ones(count, device=device))


def send_nothing():
    """Nothing leaves this rank's sockets from now on: cut.c, which is preloaded."""
    ctypes.c_int.in_dll(ctypes.CDLL(None), "sends_nothing").value = 1


def all_reduce(count):
    dist.all_reduce(torch.ones(count, device=device))


def all_gather(count):
    dist.all_gather_into_tensor(torch.empty(count * size, device=device), torch.ones(count, device=device))


def pass_on(count=1024):
    """Sends to the next rank, and receives from the one before."""
    numbers = [torch.ones(count, device=device) for _ in range(2)]
    messages = [dist.P2POp(dist.isend, numbers[0], (rank + 1) % size),
                dist.P2POp(dist.irecv, numbers[1], (rank - 1) % size)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()


def swap(receive_first, count=1024):
    """Exchanges messages with another rank, one after the other."""
    calls = [dist.irecv, dist.isend]
    for call in calls if receive_first else reversed(calls):
        call(torch.ones(count, device=device), rank ^ 1).wait()  # the stream waits, and not the program


def all_to_all(count=1024):
    """A part of another size for each rank: NCCL has no call for that, so that it is a group of messages."""
    sizes = [count * (abs(rank - r) + 1) for r in range(size)]
    dist.all_to_all([torch.empty(n, device=device) for n in sizes], [torch.ones(n, device=device) for n in sizes])


def synchronize():
    torch.cuda.synchronize()


def busy(seconds):
    """Keeps the stream busy: what is launched behind it begins later."""
    torch.cuda._sleep(seconds * 2_000_000_000)


def captured(data=None):
    """Captures an all-reduce, and returns what replays it."""
    data = torch.ones(256, device=device) if data is None else data
    graph = torch.cuda.CUDAGraph()
    synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        dist.all_reduce(data)
    return graph.replay


def destroy():
    """Destroys the communicator, and returns what destroys it once more, which returns NCCL's answer."""
    comm = ctypes.c_void_p(dist.group.WORLD._get_backend(device)._comm_ptr())
    dist.destroy_process_group()
    return lambda: ctypes.CDLL(None).ncclCommDestroy(comm)


def result(what, tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().cpu().contiguous().numpy().tobytes())
    print(f"result {what} {h.hexdigest()[:16]}", flush=True)


def layers():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(device)


def train(model, batches=None, steps=10):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(100 + rank)
    for x in batches or (torch.randn(32, 64) for _ in range(steps)):
        model(x.to(device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def ddp(model=None, **options):
    model = nn.parallel.DistributedDataParallel(model or layers(), device_ids=[device.index])
    train(model, **options)
    result("parameters", model.parameters())


def case_ddp():
    meet(device_id=device)
    ddp()


def case_fsdp():
    from torch.distributed.fsdp import fully_shard
    meet(device_id=device)
    model = layers()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    train(model)
    result("shards", [p.to_local() for p in model.parameters()])


def case_batch_isend_irecv():
    meet(device_id=device)
    here, there = torch.full((1 << 16,), float(rank + 1), device=device), torch.empty(1 << 16, device=device)
    for _ in range(5):
        messages = [dist.P2POp(dist.isend, here, (rank + 1) % size), dist.P2POp(dist.irecv, there, (rank - 1) % size)]
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        here = here * 0.5 + there
    result("messages", [here, there])


def case_split_group():
    meet(device_id=device)
    torch.manual_seed(rank)
    x = torch.randn(1 << 12, device=device)
    dist.all_reduce(x)
    evens = [[r for r in range(size) if r % 2 == odd] for odd in (0, 1)]
    for ranks in ([[*range(size)]], evens, [[0]]):
        group = dist.split_group(split_ranks=ranks)
        if group is not None and any(rank in r for r in ranks):
            dist.all_reduce(x, group=group)
    result("sums", [x])


def case_subgroups():
    meet()
    x = torch.full((1 << 12,), rank + 0.5, device=device)
    for ranks in ([0], [0, 1], [*range(size)], [size - 1, 0]):
        group = dist.new_group(ranks)
        if rank in ranks:
            dist.all_reduce(x, group=group)
            dist.broadcast(x, group=group, group_src=0)
    mesh = init_device_mesh("cuda", (1, size), mesh_dim_names=("pp", "dp"))
    dist.all_reduce(x, group=mesh.get_group("dp"))
    result("sums", [x])


def case_non_blocking_init():
    os.environ["TORCH_NCCL_USE_COMM_NONBLOCKING"] = "1"
    meet()
    ddp()
    group = dist.new_group([*range(size)])
    x = torch.full((1 << 12,), rank + 0.5, device=device)
    dist.all_reduce(x, group=group)
    result("sums", [x])


def case_dataloader_workers():
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    meet(device_id=device)
    torch.manual_seed(2)
    data = TensorDataset(torch.randn(256, 64))
    sampler = DistributedSampler(data, num_replicas=size, rank=rank, shuffle=True, seed=3)
    for _ in range(2):  # workers are forked anew each time
        ddp(batches=[x for x, in DataLoader(data, batch_size=16, sampler=sampler, num_workers=2)])


def case_compiled_step():
    meet(device_id=device)
    ddp(torch.compile(layers()), steps=5)


def case_two_nodes():
    """The sequence of NVIDIA/nccl#1605: the world, groups across nodes, groups of nodes, autograd's thread."""
    meet(device_id=device)
    dist.barrier()
    half = size // 2
    across = [dist.new_group([r, r + half]) for r in range(half)]
    dist.barrier()
    nodes = [dist.new_group([*range(n * half, (n + 1) * half)]) for n in (0, 1)]
    dist.barrier()
    rail, node = across[rank % half], nodes[rank // half]

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            all_of_node = torch.empty(half * gradient.numel(), device=device)
            dist.all_gather_into_tensor(all_of_node, gradient.contiguous(), group=node)
            return all_of_node.view(half, -1).sum(0)

    x = torch.arange(1 << 12, device=device, dtype=torch.float32).add_(rank).requires_grad_()
    for _ in range(3):
        Gather.apply(x).square().sum().mul(1e-6).backward()
        dist.all_reduce(x.grad, group=rail)
    result("gradient", [x.grad])
    ddp(steps=3)


def case_cuda_graph():
    meet(device_id=device)
    x = torch.full((256,), rank + 0.5, device=device)
    dist.all_reduce(x)
    replay = captured(x)
    for _ in range(5):
        replay()
        x.mul_(0.25)
    synchronize()
    result("sums", [x])


def end_synchronized():
    synchronize()
    dist.destroy_process_group()


def end_at_once():
    dist.all_reduce(torch.ones(1 << 20, device=device))
    dist.destroy_process_group()


def end_subgroup_first():
    dist.destroy_process_group(GROUPS[0])
    dist.destroy_process_group()


def end_world_alone():
    dist.all_reduce(torch.ones(1, device=device), group=GROUPS[0])
    dist.destroy_process_group()


def end_aborted():
    synchronize()
    dist.distributed_c10d._abort_process_group()


def end_never():
    synchronize()


def case_far_ahead():
    """The program launches six seconds of work at once, with messages and collectives in it, and waits at the end."""
    meet(device_id=device)
    x = torch.full((1024,), rank + 0.5, device=device)
    dist.all_reduce(x)
    synchronize()
    for _ in range(60):
        torch.cuda._sleep(200_000_000)
        pass_on()
        dist.all_reduce(x)
        x /= size
    result("sums", [x])


def case_late_by_turns():
    """At each step, another rank is late. None of them is a straggler."""
    meet(device_id=device)
    x = torch.full((1024,), rank + 0.5, device=device)
    for step in range(150):
        time.sleep(0.15 if step % size == rank else 0)
        dist.all_reduce(x)
        x /= size
        synchronize()
    result("sums", [x])


GROUPS = []


def ends(how):
    """A job that ends as a function says, with a group beside the world."""
    meet(device_id=device)
    GROUPS.append(dist.new_group([*range(size)]))
    x = torch.full((1 << 12,), rank + 0.5, device=device)
    dist.all_reduce(x, group=GROUPS[0])
    ddp(steps=3)
    result("sums", [x])
    globals()["end_" + how]()


def main(case):
    if case.startswith("end_"):
        ends(case.removeprefix("end_"))
    else:
        globals()["case_" + case]()
        end_synchronized()


if __name__ == "__main__":
    main(sys.argv[1])
