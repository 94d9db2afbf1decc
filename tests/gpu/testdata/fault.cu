// A process that writes to an address outside of all GPU memory. The driver reports an Xid and ends the process's
// context; the GPU and other processes on it are not affected.
#include <cstdio>

__global__ void fault(int *p) { *p = 1; }

int main() {
  fault<<<1, 1>>>(reinterpret_cast<int *>(0x10));
  cudaError_t err = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorString(err));
  return err == cudaSuccess ? 1 : 0;
}
