// The smallest messages: NCCL's LL. A unit is a packet of 8 bytes of data and two flags.

#include "shots.h"

struct LL {
  static constexpr u32 mailbox = 0, payload = carillon_payload, size = carillon_packet;
  static constexpr bool announced = false;
  static constexpr u32 threads = 1, words = 1;
  typedef Packet Raw;

  GENERIC static u64 offset_of(u64 piece) { return piece * payload; }
  GENERIC static bool has_data(u64) { return true; }

  GENERIC static void send(u64 at, const Piece<1> &d, u32 flag) {
    store_packet(at, {(u32)d.w[0], flag, (u32)(d.w[0] >> 32), flag});
  }

  GENERIC static Packet fetch(u64 at) { return load_packet(at); }

  GENERIC static bool complete(const Packet &p, u32 flag, Piece<1> &d, u32 (&seen)[2]) {
    seen[0] = p.flag_low, seen[1] = p.flag_high;
    if (p.flag_low != flag || p.flag_high != flag) return false;
    d.w[0] = p.low | (u64)p.high << 32;
    return true;
  }

  GENERIC static bool any(bool x) { return x; }
};

#define PACKETS(type, T)                                                                                               \
  KERNEL(carillon_one_shot_##type) { one_shot<LL, T, 0>(g, a); }                                                       \
  KERNEL(carillon_one_shot_##type##_2) { one_shot<LL, T, 2>(g, a); }                                                   \
  KERNEL(carillon_one_shot_##type##_4) { one_shot<LL, T, 4>(g, a); }                                                   \
  KERNEL(carillon_one_shot_##type##_8) { one_shot<LL, T, 8>(g, a); }                                                   \
  KERNEL(carillon_two_shot_##type) { two_shot<LL, T>(g, a); }

EACH_TYPE(PACKETS)

KERNEL(carillon_copy) { copies<LL, 0>(g, a); }
KERNEL(carillon_copy_2) { copies<LL, 2>(g, a); }
KERNEL(carillon_copy_4) { copies<LL, 4>(g, a); }
KERNEL(carillon_copy_8) { copies<LL, 8>(g, a); }
