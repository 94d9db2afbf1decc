// Arithmetic on host memory. Ranks are reduced in rank order, so that all ranks get the same bits.
#include <string.h>

#include "fake.h"

size_t type_size(ncclDataType_t type) {
  static const size_t size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return (unsigned)type < ncclNumTypes ? size[type] : 0;
}

typedef struct {
  uint16_t bits;
} bfloat16;

static float from_bfloat16(bfloat16 x) {
  uint32_t bits = (uint32_t)x.bits << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static bfloat16 to_bfloat16(float f) { // rounds to nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if (f == f) bits += 0x7fff + (bits >> 16 & 1);
  return (bfloat16){bits >> 16};
}

#define SAME(x) (x)
#define TO_FLOAT16(x) ((_Float16)(x))

// Each type: its C type, the type used for computing, and the conversions to that type and back.
#define TYPES(X) \
  X(ncclInt8, int8_t, int8_t, SAME, SAME) \
  X(ncclUint8, uint8_t, uint8_t, SAME, SAME) \
  X(ncclInt32, int32_t, int32_t, SAME, SAME) \
  X(ncclUint32, uint32_t, uint32_t, SAME, SAME) \
  X(ncclInt64, int64_t, int64_t, SAME, SAME) \
  X(ncclUint64, uint64_t, uint64_t, SAME, SAME) \
  X(ncclFloat16, _Float16, float, SAME, TO_FLOAT16) \
  X(ncclFloat32, float, float, SAME, SAME) \
  X(ncclFloat64, double, double, SAME, SAME) \
  X(ncclBfloat16, bfloat16, float, from_bfloat16, to_bfloat16)

#define DEFINE(name, T, W, in, out) \
  static void reduce_##name(T *a, const T *b, size_t n, ncclRedOp_t op) { \
    for (size_t i = 0; i < n; i++) { \
      W x = in(a[i]), y = in(b[i]); \
      a[i] = out(op == ncclProd ? (W)(x * y) : op == ncclMax ? (x > y ? x : y) : op == ncclMin ? (x < y ? x : y) \
                                                                                                : (W)(x + y)); \
    } \
  } \
  static void scale_##name(T *a, size_t n, const T *scalar) { \
    for (size_t i = 0; i < n; i++) a[i] = out((W)(in(a[i]) * in(*scalar))); \
  } \
  static void divide_##name(T *a, size_t n, int by) { \
    for (size_t i = 0; i < n; i++) a[i] = out((W)(in(a[i]) / (W)by)); \
  }
TYPES(DEFINE)

bool reduce(void *into, const void *from, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  switch ((int)type) {
#define CASE(name, T, W, in, out) \
  case name: reduce_##name(into, from, count, op); return true;
    TYPES(CASE)
#undef CASE
  }
  return false;
}

bool scale(void *data, size_t count, ncclDataType_t type, uint64_t scalar) {
  switch ((int)type) {
#define CASE(name, T, W, in, out) \
  case name: { \
    T s; \
    memcpy(&s, &scalar, sizeof s); \
    scale_##name(data, count, &s); \
    return true; \
  }
    TYPES(CASE)
#undef CASE
  }
  return false;
}

bool divide(void *data, size_t count, ncclDataType_t type, int by) {
  switch ((int)type) {
#define CASE(name, T, W, in, out) \
  case name: divide_##name(data, count, by); return true;
    TYPES(CASE)
#undef CASE
  }
  return false;
}
