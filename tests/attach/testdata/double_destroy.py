"""Destroys a communicator twice. NCCL's functions are looked up in its library's handle."""
import ctypes

nccl = ctypes.CDLL("libnccl.so.2")


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


unique, comm = UniqueId(), ctypes.c_void_p()
assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
assert nccl.ncclCommInitRank(ctypes.byref(comm), 1, unique, 0) == 0
assert nccl.ncclCommDestroy(comm) == 0
print(f"destroying again: {nccl.ncclCommDestroy(comm)}")
