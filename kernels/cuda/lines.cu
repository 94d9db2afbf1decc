// Messages of middle size: NCCL's LL128. A unit is a quad: four lines of 128 bytes, each of which arrives as a whole.
// The last 4 bytes of a line are its flag, and the 4 bytes before them are unused. 15/16 of the traffic on a link is
// data, compared with half in LL; but a warp must wait for its whole quad, so LL is faster below some 100 KiB.

#include "shots.h"

struct LL128 {
  static constexpr u32 mailbox = 1, payload = carillon_quad_payload, size = carillon_quad;
  static constexpr bool announced = true;
  static constexpr u32 threads = quad_threads, words = quad_words;
  typedef RawPiece Raw;

  GENERIC static u64 offset_of(u64 piece) { return quad_offset(piece); }
  GENERIC static bool has_data(u64 piece) { return quad_has_data(piece); }

  GENERIC static void send(u64 at, const Piece<words> &d, u32 flag) { store_quad(at, d.w, flag); }

  GENERIC static Raw fetch(u64 at) { return load_quad(at); }

  GENERIC static bool complete(const Raw &raw, u32 flag, Piece<words> &d, u32 (&seen)[2]) {
    return quad_complete(raw, flag, d.w, seen);
  }

  GENERIC static bool any(bool x) { return any_of_quad(x); }
};

#define LINES(type, T)                                                                                                 \
  KERNEL(carillon_one_shot_ll128_##type) { one_shot<LL128, T, 0>(g, a); }                                              \
  KERNEL(carillon_one_shot_ll128_##type##_2) { one_shot<LL128, T, 2>(g, a); }                                          \
  KERNEL(carillon_two_shot_ll128_##type) { two_shot<LL128, T>(g, a); }

EACH_TYPE(LINES)

KERNEL(carillon_copy_ll128) { copies<LL128, 0>(g, a); }
KERNEL(carillon_copy_ll128_2) { copies<LL128, 2>(g, a); }
