// Makes every operation on every type, and checks the results.
#include "program.h"

struct ncclWaitSignalDesc {
  int opCnt, peer, sigIdx, ctx;
};

enum { COUNT = 5000, MOST = 8 };

static const struct {
  ncclDataType_t type;
  size_t size;
} types[] = {{ncclInt8, 1},  {ncclUint8, 1},   {ncclInt32, 4},   {ncclUint32, 4},  {ncclInt64, 8},
             {ncclUint64, 8}, {ncclFloat16, 2}, {ncclBfloat16, 2}, {ncclFloat32, 4}, {ncclFloat64, 8}};

static void set(void *data, size_t i, ncclDataType_t type, double value) {
  switch ((int)type) {
  case ncclInt8: ((int8_t *)data)[i] = value; break;
  case ncclUint8: ((uint8_t *)data)[i] = value; break;
  case ncclInt32: ((int32_t *)data)[i] = value; break;
  case ncclUint32: ((uint32_t *)data)[i] = value; break;
  case ncclInt64: ((int64_t *)data)[i] = value; break;
  case ncclUint64: ((uint64_t *)data)[i] = value; break;
  case ncclFloat16: ((_Float16 *)data)[i] = value; break;
  case ncclFloat32: ((float *)data)[i] = value; break;
  case ncclFloat64: ((double *)data)[i] = value; break;
  case ncclBfloat16: {
    float f = value;
    memcpy((char *)data + 2 * i, (char *)&f + 2, 2);
  }
  }
}

static double get(const void *data, size_t i, ncclDataType_t type) {
  switch ((int)type) {
  case ncclInt8: return ((const int8_t *)data)[i];
  case ncclUint8: return ((const uint8_t *)data)[i];
  case ncclInt32: return ((const int32_t *)data)[i];
  case ncclUint32: return ((const uint32_t *)data)[i];
  case ncclInt64: return ((const int64_t *)data)[i];
  case ncclUint64: return ((const uint64_t *)data)[i];
  case ncclFloat16: return ((const _Float16 *)data)[i];
  case ncclFloat32: return ((const float *)data)[i];
  case ncclFloat64: return ((const double *)data)[i];
  }
  float f = 0;
  memcpy((char *)&f + 2, (const char *)data + 2 * i, 2);
  return f;
}

// Values are small, so that sums and products over a few ranks are exact in every type.
static double value(int rank, size_t i) {
  return 1 + (rank + i) % 3;
}

static double reduced(int n, size_t i, ncclRedOp_t op, bool whole) {
  double x = value(0, i);
  for (int r = 1; r < n; r++) {
    double y = value(r, i);
    x = op == ncclProd ? x * y : op == ncclMax ? (x > y ? x : y) : op == ncclMin ? (x < y ? x : y) : x + y;
  }
  if (op == ncclAvg) x /= n;
  return whole ? (double)(long)x : x;
}

#define EACH(i, count, expected) \
  for (size_t i = 0; i < (count); i++) CHECK(get(out, i, type) == (expected))

static int run_rank(int rank, int n, ncclUniqueId id) {
  ncclComm_t comm;
  cudaStream_t stream;
  MUST(ncclCommInitRank(&comm, n, id, rank));
  cudaStreamCreate(&stream);
  char *in = calloc(COUNT * MOST, 8), *out = calloc(COUNT * MOST, 8);
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    ncclDataType_t type = types[t].type;
    size_t size = types[t].size;
    bool whole = type <= ncclUint64;
    for (size_t i = 0; i < COUNT * (size_t)n; i++) set(in, i, type, value(rank, i));
    for (ncclRedOp_t op = ncclSum; op <= ncclAvg; op++) {
      MUST(ncclAllReduce(in, out, COUNT, type, op, comm, stream));
      cudaStreamSynchronize(stream);
      EACH(i, COUNT, reduced(n, i, op, whole));
      MUST(ncclReduceScatter(in, out, COUNT, type, op, comm, stream));
      cudaStreamSynchronize(stream);
      EACH(i, COUNT, reduced(n, rank * COUNT + i, op, whole));
      memset(out, 0, COUNT * size);
      MUST(ncclReduce(in, out, COUNT, type, op, n - 1, comm, stream));
      cudaStreamSynchronize(stream);
      EACH(i, COUNT, rank == n - 1 ? reduced(n, i, op, whole) : 0);
    }
    MUST(ncclBroadcast(in, out, COUNT, type, n - 1, comm, stream));
    cudaStreamSynchronize(stream);
    EACH(i, COUNT, value(n - 1, i));
    MUST(ncclAllGather(in, out, COUNT, type, comm, stream));
    cudaStreamSynchronize(stream);
    EACH(i, COUNT * (size_t)n, value((int)(i / COUNT), i % COUNT));
    if (ncclAlltoAll) {
      MUST(ncclAlltoAll(in, out, COUNT, type, comm, stream));
      cudaStreamSynchronize(stream);
      EACH(i, COUNT * (size_t)n, value((int)(i / COUNT), rank * COUNT + i % COUNT));
      memset(out, 0, COUNT * n * size);
      MUST(ncclGather(in, out, COUNT, type, 0, comm, stream));
      cudaStreamSynchronize(stream);
      EACH(i, COUNT * (size_t)n, rank == 0 ? value((int)(i / COUNT), i % COUNT) : 0);
      MUST(ncclScatter(in, out, COUNT, type, 0, comm, stream));
      cudaStreamSynchronize(stream);
      EACH(i, COUNT, value(0, rank * COUNT + i));
    }
    // Every rank sends to every rank, itself included, in one group.
    MUST(ncclGroupStart());
    for (int r = 0; r < n; r++) {
      MUST(ncclSend(in + r * COUNT * size, COUNT, type, r, comm, stream));
      MUST(ncclRecv(out + r * COUNT * size, COUNT, type, r, comm, stream));
    }
    MUST(ncclGroupEnd());
    cudaStreamSynchronize(stream);
    EACH(i, COUNT * (size_t)n, value((int)(i / COUNT), rank * COUNT + i % COUNT));
    if (type == ncclFloat64 || type == ncclInt32) {
      ncclRedOp_t doubled;
      char two[8];
      set(two, 0, type, 2);
      MUST(ncclRedOpCreatePreMulSum(&doubled, two, type, ncclScalarHostImmediate, comm));
      MUST(ncclAllReduce(in, in, COUNT, type, doubled, comm, stream)); // in place
      cudaStreamSynchronize(stream);
      memcpy(out, in, COUNT * size);
      EACH(i, COUNT, 2 * reduced(n, i, ncclSum, false));
      MUST(ncclRedOpDestroy(doubled, comm));
    }
  }
  if (ncclPutSignal) { // a ring: put to the next rank, wait for the previous one
    ncclWindow_t window;
    int mine = rank, got[2] = {-1, -1};
    struct ncclWaitSignalDesc wait = {1, (rank + n - 1) % n, 0, 0};
    MUST(ncclCommWindowRegister(comm, got, sizeof got, &window, 0));
    MUST(ncclPutSignal(&mine, 1, ncclInt32, (rank + 1) % n, window, sizeof(int), 0, 0, 0, comm, stream));
    MUST(ncclWaitSignal(1, &wait, comm, stream));
    cudaStreamSynchronize(stream);
    CHECK(got[0] == -1 && got[1] == (rank + n - 1) % n);
  }
  MUST(ncclCommFinalize(comm));
  MUST(ncclCommDestroy(comm));
  cudaStreamDestroy(stream);
  free(in);
  free(out);
  return 0;
}
