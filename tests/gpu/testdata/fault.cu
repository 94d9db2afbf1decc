// A process that writes to an address that no GPU memory has. The driver answers with an Xid and ends its context; the GPU
// and other processes on it are not concerned.
#include <cstdio>

__global__ void fault(int *p) { *p = 1; }

int main() {
  fault<<<1, 1>>>(reinterpret_cast<int *>(0x10));
  cudaError_t err = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorString(err));
  return err == cudaSuccess ? 1 : 0;
}
