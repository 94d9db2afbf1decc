// What reductions mean: the same as in package kernels, in Go, bit by bit. Floats of 16 and 8 bits are widened to
// float, reduced there in rank order, and rounded once, at the end.
#pragma once

#include "platform.h"

template <class To, class From> GENERIC To bits_of(From f) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  return __builtin_bit_cast(To, f);
}

// not_a_number is the NaN that results from an operation: the first operand that is a NaN, made quiet, or the NaN that
// x86 makes.
GENERIC float not_a_number(float x, float y) {
  if (x == x) x = y;
  return x == x ? bits_of<float>(0xffc00000u) : bits_of<float>(bits_of<u32>(x) | 1u << 22);
}

GENERIC double not_a_number(double x, double y) {
  if (x == x) x = y;
  return x == x ? bits_of<double>(0xfff8000000000000ull) : bits_of<double>(bits_of<u64>(x) | 1ull << 51);
}

// An integer is always a number: this is never called.
template <class T> GENERIC T not_a_number(T x, T) { return x; }

template <class A> GENERIC bool negative(A x) { return x < 0; }
template <> GENERIC bool negative(float x) { return bits_of<u32>(x) >> 31; }
template <> GENERIC bool negative(double x) { return bits_of<u64>(x) >> 63; }

// less orders -0 below +0.
template <class A> GENERIC bool less(A x, A y) { return x < y || (x == y && negative(x) && !negative(y)); }

template <class A> GENERIC A add(A x, A y) { return x + y; }
template <> GENERIC i8 add(i8 x, i8 y) { return (i8)((u8)x + (u8)y); }
template <> GENERIC i32 add(i32 x, i32 y) { return (i32)((u32)x + (u32)y); }
template <> GENERIC i64 add(i64 x, i64 y) { return (i64)((u64)x + (u64)y); }

template <class A> GENERIC A mul(A x, A y) { return x * y; }
template <> GENERIC i8 mul(i8 x, i8 y) { return (i8)((u8)x * (u8)y); }
template <> GENERIC i32 mul(i32 x, i32 y) { return (i32)((u32)x * (u32)y); }
template <> GENERIC i64 mul(i64 x, i64 y) { return (i64)((u64)x * (u64)y); }

template <class A> GENERIC A least(A x, A y) { return x != x || less(x, y) ? x : y; }

template <class A> GENERIC A greatest(A x, A y) { return x != x || less(y, x) ? x : y; }

template <class T> RARE T quotient(T x, u32 n) { return x < 0 ? (T)((i64)x / (i64)n) : (T)((u64)x / n); }
template <> RARE float quotient(float x, u32 n) {
  float q = x / (float)n;
  return q == q ? q : not_a_number(x, (float)n);
}
template <> RARE double quotient(double x, u32 n) {
  double q = x / (double)n;
  return q == q ? q : not_a_number(x, (double)n);
}

// integer_factor truncates towards zero; values out of range become the nearest end of the range, and a NaN 0.
template <class T> GENERIC T integer_factor(double f) {
  const int bits = 8 * sizeof(T);
  const bool is_signed = (T)-1 < (T)0;
  const double limit = is_signed ? (double)(1ull << (bits - 1)) : 2.0 * (double)(1ull << (bits - 1));
  const T lowest = is_signed ? (T)(1ull << (bits - 1)) : 0;
  if (f != f) return 0;
  if (f >= limit) return (T)~lowest;
  if (f <= (double)lowest) return lowest;
  return is_signed ? (T)(i64)f : (T)(u64)f;
}

template <class T> GENERIC T product(T x, double f) { return mul(x, integer_factor<T>(f)); }
template <> GENERIC float product(float x, double f) {
  float g = (float)f, p = x * g;
  return p == p ? p : not_a_number(x, g);
}
template <> GENERIC double product(double x, double f) {
  double p = x * f;
  return p == p ? p : not_a_number(x, f);
}

// A type says how an element is stored (Bits), what it is computed in (Wide), and how to convert between the two.
template <class T> struct Plain {
  typedef T Bits;
  typedef T Wide;
  GENERIC static Wide widen(Bits b) { return b; }
  GENERIC static Bits narrow(Wide w) { return w; }
};

typedef Plain<i8> Int8;
typedef Plain<u8> Uint8;
typedef Plain<i32> Int32;
typedef Plain<u32> Uint32;
typedef Plain<i64> Int64;
typedef Plain<u64> Uint64;
typedef Plain<float> Float32;
typedef Plain<double> Float64;

struct Float16 {
  typedef u16 Bits;
  typedef float Wide;

  GENERIC static float widen(u16 h) {
    // With the fields at their float positions, only the difference of the exponents' biases, 112, is missing. A
    // multiplication adds it, and also normalizes subnormal numbers.
    u32 bits = bits_of<u32>(bits_of<float>((u32)(h & 0x7fff) << 13) * 0x1p112f) | (u32)(h & 0x8000) << 16;
    if ((h & 0x7c00) == 0x7c00) bits |= 0x7f800000 | (h & 0x3ff ? 1u << 22 : 0);
    return bits_of<float>(bits);
  }

  GENERIC static u16 narrow(float f) {
    u32 bits = bits_of<u32>(f), sign = bits >> 16 & 0x8000;
    if (f != f) return (u16)(sign | 0x7e00 | (bits >> 13 & 0x1ff));
    // unit is 2^13 times f's power of two (which counts as at least 2^-14, for subnormal numbers). Its last bit is
    // where a half has its own, so the addition rounds. Values beyond the range are treated as 2^16, whose bit pattern
    // is the infinity's.
    u32 abs = bits & 0x7fffffff;
    if (abs > 0x47800000) abs = 0x47800000;
    u32 unit = abs & 0x7f800000;
    unit = (unit > 0x38800000 ? unit : 0x38800000) + (13 << 23);
    u32 rounded = bits_of<u32>(bits_of<float>(abs) + bits_of<float>(unit)) - unit;
    return (u16)(sign + rounded + ((unit - 0x3f000000) >> 13));
  }
};

struct BFloat16 {
  typedef u16 Bits;
  typedef float Wide;

  GENERIC static float widen(u16 h) { return bits_of<float>((u32)h << 16); }

  GENERIC static u16 narrow(float f) {
    u32 bits = bits_of<u32>(f);
    if (f != f) return (u16)(bits >> 16 | 0x40);
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

struct Float8E4M3 {
  typedef u8 Bits;
  typedef float Wide;

  GENERIC static float widen(u8 e) {
    u32 sign = (u32)(e & 0x80) << 24;
    if ((e & 0x7f) == 0x7f) return bits_of<float>(sign | 0x7fc00000);
    return bits_of<float>(sign | bits_of<u32>(bits_of<float>((u32)(e & 0x7f) << 20) * 0x1p120f));
  }

  // Overflow saturates: there are no infinities.
  GENERIC static u8 narrow(float f) {
    u32 bits = bits_of<u32>(f), abs = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    if (abs > 0x7f800000) return (u8)(sign | 0x7f);
    if (abs >= 0x43e80000) return (u8)(sign | 0x7e);
    if (abs >= 0x3c800000) return (u8)(sign | (abs - (120 << 23) + 0x7ffff + (abs >> 20 & 1)) >> 20);
    // Just above 2^14, a float counts in units of 2^-9, as a subnormal number here does: the addition rounds.
    return (u8)(sign | (bits_of<u32>(bits_of<float>(abs) + 0x1p14f) - bits_of<u32>(0x1p14f)));
  }
};

struct Float8E5M2 {
  typedef u8 Bits;
  typedef float Wide;

  GENERIC static float widen(u8 e) { return Float16::widen((u16)(e << 8)); }

  GENERIC static u8 narrow(float f) {
    u32 bits = bits_of<u32>(f), abs = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    if (abs > 0x7f800000) return (u8)(sign | 0x7e | (abs >> 21 & 1));
    if (abs >= 0x47800000) return (u8)(sign | 0x7c);
    if (abs >= 0x38800000) return (u8)(sign | (abs - (112 << 23) + 0xfffff + (abs >> 21 & 1)) >> 21);
    // Just above 2^7, a float counts in units of 2^-16, as a subnormal number here does: the addition rounds.
    return (u8)(sign | (bits_of<u32>(bits_of<float>(abs) + 0x1p7f) - bits_of<u32>(0x1p7f)));
  }
};

// Elements are the elements in some bytes, widened for computation.
template <class T, int Bytes> struct Elements {
  static constexpr int n = Bytes / (int)sizeof(typename T::Bits);
  typename T::Wide e[n];

  // of reads a rank's contribution.
  GENERIC static Elements of(const u64 (&data)[Bytes / 8]) {
    Elements x;
    typename T::Bits raw[n];
    __builtin_memcpy(raw, data, Bytes);
    UNROLL
    for (int i = 0; i < n; i++) x.e[i] = T::widen(raw[i]);
    return x;
  }

  GENERIC void add_to(const Elements &y) {
    each(y, [](auto x, auto y) { return add(x, y); });
  }

  GENERIC void combine_with(u32 reduction, const Elements &y) {
    switch (reduction) {
    case carillon_prod:
      return each(y, [](auto x, auto y) { return mul(x, y); });
    case carillon_max:
      return each(y, [](auto x, auto y) { return greatest(x, y); });
    case carillon_min:
      return each(y, [](auto x, auto y) { return least(x, y); });
    default:
      return add_to(y);
    }
  }

  template <class F> GENERIC void each(const Elements &y, F &&f) {
    Elements z;
    bool number = true;
    UNROLL
    for (int i = 0; i < n; i++) {
      z.e[i] = f(e[i], y.e[i]);
      number &= z.e[i] == z.e[i];
    }
    if (UNLIKELY(!number)) {
      UNROLL
      for (int i = 0; i < n; i++)
        if (z.e[i] != z.e[i]) z.e[i] = not_a_number(e[i], y.e[i]);
    }
    *this = z;
  }

  GENERIC void divide_by(u32 ranks) {
    LOOP
    for (int i = 0; i < n; i++) e[i] = quotient(e[i], ranks);
  }

  GENERIC void put(u64 (&data)[Bytes / 8]) const {
    typename T::Bits raw[n];
    UNROLL
    for (int i = 0; i < n; i++) raw[i] = T::narrow(e[i]);
    __builtin_memcpy(data, raw, Bytes);
  }
};

// scaled is a rank's contribution times its factor: rounded before any other rank sees it.
template <class T> RARE u64 scaled(u64 data, double factor) {
  typename T::Bits raw[sizeof data / sizeof(typename T::Bits)];
  __builtin_memcpy(raw, &data, sizeof data);
  LOOP
  for (auto &b : raw) b = T::narrow(product(T::widen(b), factor));
  __builtin_memcpy(&data, raw, sizeof data);
  return data;
}

// EACH_TYPE expands X for each type, with its name in Go.
#define EACH_TYPE(X)                                                                                                   \
  X(int8, Int8)                                                                                                        \
  X(uint8, Uint8)                                                                                                      \
  X(int32, Int32)                                                                                                      \
  X(uint32, Uint32)                                                                                                    \
  X(int64, Int64)                                                                                                      \
  X(uint64, Uint64)                                                                                                    \
  X(float16, Float16)                                                                                                  \
  X(float32, Float32)                                                                                                  \
  X(float64, Float64)                                                                                                  \
  X(bfloat16, BFloat16)                                                                                                \
  X(float8_e4m3, Float8E4M3)                                                                                           \
  X(float8_e5m2, Float8E5M2)
