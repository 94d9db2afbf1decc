// Collectives of much data, and messages: through FIFOs. A sender writes into slots in the receiver's window, fences,
// and raises the slot's flag; the receiver takes the data from its own memory, and returns the slot as credit. All
// access to another GPU is a write, and only the caller's own GPU touches its buffers.
//
// A channel is some blocks, each with a role of its own, and the FIFOs between blocks of the same channel. Data is
// dealt to the channels in steps. FIFOs keep their positions from launch to launch, so that nothing need be in step but
// the two ends of each.

#include "element.h"
#include "operation.h"

// Steps are how a buffer is dealt to channels: the same at both ends.
struct Steps {
  u64 bytes;
  u32 channels, step, n; // step: bytes; n: steps of a channel

  GENERIC static Steps of(const carillon_args &a, u64 bytes) {
    Steps s = {bytes, 0, 0, 0};
    const u64 slices = divided_up(bytes, a.slot < (u32)carillon_slice ? a.slot : (u32)carillon_slice);
    s.channels = slices < a.channels ? (u32)slices : a.channels;
    if (s.channels == 0) return s;
    const u64 each = divided_up(divided_up(bytes, s.channels), sizeof(Vector)) * sizeof(Vector);
    s.step = each < a.slot ? (u32)each : a.slot;
    s.n = (u32)divided_up(bytes, (u64)s.step * s.channels);
    return s;
  }

  GENERIC static u64 divided_up(u64 bytes, u64 by) { return (bytes + by - 1) / by; }

  GENERIC u64 at(u32 channel, u32 i) const { return ((u64)i * channels + channel) * step; }

  // rest is what a step at some offset has of so many bytes.
  GENERIC u64 rest(u64 at, u64 of) const { return at >= of ? 0 : of - at < step ? of - at : step; }
};

enum Direction { sent, received };

// Fifo is one end of a block's FIFOs to or from some ranks, which advance together.
struct Fifo {
  u32 kind, channel;
  u32 peers; // how many ranks after this one, as bits
  u32 step;  // since the launch
  u32 begin[carillon_max_ranks];

  // next is the position of the FIFO to or from the rank k after this one.
  GENERIC u32 next(u32 k) const { return of(begin, k) + step; }

  // lane is that of the rank k after this one, in this rank's window, and back of this rank in that one's.
  GENERIC u32 lane(u32 k) const { return (channel * carillon_fifos + kind) * (carillon_max_ranks - 1) + k - 1; }
  GENERIC u32 back(const Operation &op, u32 k) const { return lane(op.ranks - k); }
};

DEVICE u64 flag_at(const carillon_args &a, u32 lane, u32 position) {
  return control(a) + carillon_flags + (lane * carillon_slots + position % carillon_slots) * 4;
}

DEVICE u64 credit_at(const carillon_args &a, u32 lane) { return control(a) + carillon_credits + lane * 4; }

// slot_at is where a slot lies in the window of a rank that gets it from the rank k after it. There is no room for
// ranks that aren't there.
DEVICE u64 slot_at(const carillon_args &a, const Operation &op, const Fifo &f, u32 k, u32 position) {
  const u32 fifo = (f.channel * carillon_fifos + f.kind) * (op.ranks - 1) + k - 1;
  return control(a) + carillon_control + ((u64)fifo * carillon_slots + position % carillon_slots) * a.slot;
}

// target is where the next slot of the rank k after this one is written, and source where that from there is read.
DEVICE u64 target(const carillon_args &a, const Operation &op, const Fifo &f, u32 k) {
  return of(a.window, k) + slot_at(a, op, f, op.ranks - k, f.next(k));
}

DEVICE u64 source(const carillon_args &a, const Operation &op, const Fifo &f, u32 k) {
  return a.window[0] + slot_at(a, op, f, k, f.next(k));
}

DEVICE u64 position_at(const carillon_args &a, u32 lane, Direction d) {
  return a.state + carillon_positions + lane * 8 + d * 4;
}

RARE Fifo open(const carillon_args &a, u32 kind, u32 channel, u32 peers, Direction d) {
  Fifo f = {kind, channel, peers, 0, {}};
  UNROLL
  for (u32 k = 1; k < carillon_max_ranks; k++)
    if (peers >> k & 1) f.begin[k] = load_u32(position_at(a, f.lane(k), d));
  return f;
}

RARE void close(const Grid &g, const carillon_args &a, const Fifo &f, Direction d) {
  g.sync(); // all threads have read the positions
  if (g.thread) return;
  UNROLL
  for (u32 k = 1; k < carillon_max_ranks; k++)
    if (f.peers >> k & 1) *reinterpret_cast<u32 *>(position_at(a, f.lane(k), d)) = f.begin[k] + f.step;
}

// await has the block's first thread wait for something of each peer, and is false if the block must give up.
template <class Here>
DEVICE bool await(const Grid &g, const carillon_args &a, Operation &op, const Fifo &f, u32 phase, Here &&here) {
  if (g.thread == 0) {
    u32 missing = f.peers;
    wait(g, a, op, phase, [&](Missing &m) {
      LOOP
      for (u32 k = 1; k < op.ranks; k++) {
        if (!(missing >> k & 1)) continue;
        const u32 rank = behind(a, op, k);
        if (here(k, m))
          missing &= ~(1u << k);
        else
          m.peer = rank;
      }
      return missing == 0;
    });
    fence();
  }
  op.left = g.any(op.left);
  return !op.left;
}

// room waits until all peers have room for one more slot.
RARE bool room(const Grid &g, const carillon_args &a, Operation &op, const Fifo &f) {
  return await(g, a, op, f, carillon_room, [&](u32 k, Missing &) {
    return (i32)(f.next(k) - load_flag(a.window[0] + credit_at(a, f.lane(k)))) < carillon_slots;
  });
}

DEVICE u32 flag_of(const Fifo &f, u32 k, u32 signature) { return (f.next(k) + 1) << 8 | signature; }

// data waits until all peers' next slot is there.
RARE bool data(const Grid &g, const carillon_args &a, Operation &op, const Fifo &f, u32 phase, u32 signature) {
  return await(g, a, op, f, phase, [&](u32 k, Missing &m) {
    m.flag = flag_of(f, k, signature), m.seen = load_flag(a.window[0] + flag_at(a, f.lane(k), f.next(k)));
    return m.seen == m.flag;
  });
}

// raise tells all peers that the next slot is there, which all threads have written. The first thread calls it behind
// a barrier.
RARE void raise(const carillon_args &a, const Operation &op, const Fifo &f, u32 signature) {
  fence();
  LOOP
  for (u32 k = 1; k < op.ranks; k++)
    if (f.peers >> k & 1) store_flag(of(a.window, k) + flag_at(a, f.back(op, k), f.next(k)), flag_of(f, k, signature));
}

// release returns the next slot to all peers, which all threads have read. The first thread calls it behind a barrier.
RARE void release(const carillon_args &a, const Operation &op, const Fifo &f) {
  LOOP
  for (u32 k = 1; k < op.ranks; k++)
    if (f.peers >> k & 1) store_flag(of(a.window, k) + credit_at(a, f.back(op, k)), f.next(k) + 1);
}

DEVICE bool aligned(u64 at) { return at % sizeof(Vector) == 0; }

// copy is by all threads of a block.
RARE void copy(Grid g, u64 to, u64 from, u32 bytes) {
  u32 vectors = 0;
  if (aligned(to | from)) {
    constexpr u32 n = 8;
    vectors = bytes / sizeof(Vector);
    u32 i = g.thread;
    for (; i + (n - 1) * g.threads < vectors; i += n * g.threads) {
      Vector v[n];
      UNROLL
      for (u32 j = 0; j < n; j++) v[j] = load_vector(from + (i + j * g.threads) * sizeof(Vector));
      UNROLL
      for (u32 j = 0; j < n; j++) store_vector(to + (i + j * g.threads) * sizeof(Vector), v[j]);
    }
    LOOP
    for (; i < vectors; i += g.threads) store_vector(to + i * sizeof(Vector), load_vector(from + i * sizeof(Vector)));
  }
  LOOP
  for (u32 at = vectors * sizeof(Vector) + g.thread * 8; at < bytes; at += g.threads * 8)
    store(to + at, bytes - at, load(from + at, bytes - at));
}

// send and receive are of one buffer, from or to one peer.
DEVICE void send(const Grid &g, const carillon_args &a, Operation &op, Fifo &f, u32 k, carillon_message m) {
  const Steps s = Steps::of(a, m.bytes >> 8);
  if (f.channel >= s.channels) return;
  for (u32 i = 0; i < s.n && room(g, a, op, f); i++, f.step++) {
    const u64 at = s.at(f.channel, i);
    copy(g, target(a, op, f, k), m.at + at, s.rest(at, s.bytes));
    g.sync();
    if (g.thread == 0) raise(a, op, f, m.bytes & 0xff);
  }
}

DEVICE void receive(const Grid &g, const carillon_args &a, Operation &op, Fifo &f, u32 k, carillon_message m) {
  const Steps s = Steps::of(a, m.bytes >> 8);
  if (f.channel >= s.channels) return;
  for (u32 i = 0; i < s.n && data(g, a, op, f, carillon_data, m.bytes & 0xff); i++, f.step++) {
    const u64 at = s.at(f.channel, i);
    copy(g, m.at + at, source(a, op, f, k), s.rest(at, s.bytes));
    g.sync();
    if (g.thread == 0) release(a, op, f);
  }
}

// announce tells every rank which collective this one is in. They look when they have waited for long.
DEVICE void announce(const Grid &g, const carillon_args &a, const Operation &op) {
  if (g.block || g.thread || !a.signature) return;
  LOOP
  for (u32 k = 1; k < op.ranks; k++)
    store_u64(of(a.window, k) + control(a) + carillon_entered + a.rank * 8,
              op.counts.collectives | (u64)a.signature << 32);
}

// exchange sends and receives lists of messages: send and receive, all-gather, all-to-all, broadcast, gather,
// scatter. A channel has a block for each list, so that no message waits for another rank's.
DEVICE void exchange(const Grid &g, const carillon_args &a, const carillon_exchange_args &list) {
  Operation op = begin(a, counts_of(g, a), a.ranks);
  announce(g, a, op);
  const u32 roles = 2 * op.ranks - 1, role = g.block % roles, channel = g.block / roles, channels = g.blocks / roles;
  const u32 k = (role + 1) / 2;
  if (role == 0) {
    for (u32 i = 0; list.first[0] + i < list.first[1]; i++) {
      const carillon_message from = list.messages[list.first[0] + i];
      const carillon_message to = list.messages[list.first[carillon_max_ranks] + i];
      const u64 bytes = from.bytes >> 8, part = Steps::divided_up(bytes, (u64)channels * 16) * 16, at = channel * part;
      if (from.at != to.at && at < bytes) copy(g, to.at + at, from.at + at, bytes - at < part ? bytes - at : part);
    }
  } else {
    const Direction d = role % 2 ? sent : received;
    const u32 l = d == sent ? k : carillon_max_ranks + k;
    Fifo f = open(a, carillon_fifo_messages, channel, 1u << k, d);
    for (u32 i = list.first[l]; i < list.first[l + 1] && !op.left; i++) {
      if (d == sent)
        send(g, a, op, f, k, list.messages[i]);
      else
        receive(g, a, op, f, k, list.messages[i]);
    }
    close(g, a, f, d);
  }
  end(g, a, op);
}

KERNEL_WITH(carillon_exchange, carillon_exchange_args) {
  const carillon_args common = a.common; // what has its address taken is copied
  exchange(g, common, a);
}

// scale copies what a rank contributes times its factor. By all threads of a block.
template <class T> RARE void scale(Grid g, u64 to, u64 from, u32 bytes, double factor) {
  LOOP
  for (u32 at = g.thread * 8; at < bytes; at += g.threads * 8)
    store(to + at, bytes - at, scaled<T>(load(from + at, bytes - at), factor));
}

// Shares are what each rank reduces: its part of a reduce-scatter, else as much as the others.
struct Shares {
  bool scatter;
  u64 bytes, share; // share: of the largest one

  GENERIC static Shares of(const carillon_args &a, const Operation &op) {
    if (a.send_stride) return {true, a.bytes, a.bytes};
    return {false, a.bytes, Steps::divided_up(Steps::divided_up(a.bytes, op.ranks), sizeof(Vector)) * sizeof(Vector)};
  }

  GENERIC u64 at(const carillon_args &a, u32 rank) const { return rank * (scatter ? a.send_stride : share); }

  GENERIC u64 of_rank(u32 rank) const {
    const u64 at = rank * share;
    return scatter ? bytes : at >= bytes ? 0 : bytes - at < share ? bytes - at : share;
  }
};

// Slice is what a block reduces in a step: all ranks', by rank, to where the result goes.
struct Slice {
  u32 bytes, ranks, reduction, targets;
  u32 scaled; // the rank whose contribution is multiplied with the factor; all others were by their owners
  double factor;
  u64 from[carillon_max_ranks], to[carillon_max_ranks];
};

// sum_vectors adds n vectors of all ranks, in their order, each so many threads behind the one before.
template <class T, int n> DEVICE void sum_vectors(const Slice &s, u32 at, u32 stride) {
  Elements<T, sizeof(Vector)> sum[n];
  LOOP
  for (u32 r = 0; r < s.ranks; r++) {
    const u64 from = s.from[r] + at;
    Vector v[n];
    UNROLL
    for (int j = 0; j < n; j++) v[j] = load_vector(from + j * stride);
    UNROLL
    for (int j = 0; j < n; j++) {
      const auto x = Elements<T, sizeof(Vector)>::of({v[j].low, v[j].high});
      if (r == 0)
        sum[j] = x;
      else
        sum[j].add_to(x);
    }
  }
  u64 data[n][2];
  UNROLL
  for (int j = 0; j < n; j++) sum[j].put(data[j]);
  LOOP
  for (u32 t = 0; t < s.targets; t++) {
    const u64 to = s.to[t] + at;
    UNROLL
    for (int j = 0; j < n; j++) store_vector(to + j * stride, {data[j][0], data[j][1]});
  }
}

// reduce_bytes makes any reduction of buffers that begin anywhere. It is a function of its own, to keep the sum small.
template <class T> RARE void reduce_bytes(Grid g, const Slice &s, u32 begin) {
  LOOP
  for (u32 at = begin + g.thread * 8; at < s.bytes; at += g.threads * 8) {
    Elements<T, 8> result;
    LOOP
    for (u32 r = 0; r < s.ranks; r++) {
      u64 data = load(s.from[r] + at, s.bytes - at);
      if (s.reduction == carillon_premul_sum && r == s.scaled) data = scaled<T>(data, s.factor);
      const auto x = Elements<T, 8>::of({data});
      if (r == 0)
        result = x;
      else
        result.combine_with(s.reduction, x);
    }
    if (s.reduction == carillon_avg) result.divide_by(s.ranks);
    u64 data[1];
    result.put(data);
    LOOP
    for (u32 t = 0; t < s.targets; t++) store(s.to[t] + at, s.bytes - at, data[0]);
  }
}

template <class T> DEVICE void reduce_slice(const Grid &g, const Slice &s) {
  u64 any = 0;
  LOOP
  for (u32 r = 0; r < s.ranks; r++) any |= s.from[r] | (r < s.targets ? s.to[r] : 0);
  u32 vectors = 0;
  if (aligned(any) && s.reduction == carillon_sum) {
    constexpr u32 n = Elements<T, sizeof(Vector)>::n <= 4 ? 4 : 2;
    const u32 stride = g.threads * sizeof(Vector);
    vectors = s.bytes / sizeof(Vector);
    u32 v = g.thread;
    for (; v + (n - 1) * g.threads < vectors; v += n * g.threads) sum_vectors<T, n>(s, v * sizeof(Vector), stride);
    LOOP
    for (; v < vectors; v += g.threads) sum_vectors<T, 1>(s, v * sizeof(Vector), stride);
  }
  if (vectors * sizeof(Vector) < s.bytes) reduce_bytes<T>(g, s, vectors * sizeof(Vector));
}

// distribute sends each rank the part of this one's buffer that it reduces.
template <class T>
DEVICE void distribute(const Grid &g, const carillon_args &a, Operation &op, u32 channel, u32 peers) {
  const Shares shares = Shares::of(a, op);
  const Steps s = Steps::of(a, shares.share);
  Fifo f = open(a, carillon_fifo_parts, channel, peers, sent);
  for (u32 i = 0; i < s.n; i++, f.step++) {
    const u64 at = s.at(channel, i);
    if (!room(g, a, op, f)) return;
    LOOP
    for (u32 k = 1; k < op.ranks; k++) {
      const u32 r = behind(a, op, k);
      const u64 from = a.send + shares.at(a, r) + at, bytes = s.rest(at, shares.of_rank(r));
      const u64 to = target(a, op, f, k);
      if (a.reduction == carillon_premul_sum)
        scale<T>(g, to, from, bytes, a.factor);
      else
        copy(g, to, from, bytes);
    }
    g.sync();
    if (g.thread == 0) raise(a, op, f, a.signature);
  }
  close(g, a, f, sent);
}

// reduce_share reduces this rank's share of all ranks' buffers, and sends the result to those that get it.
template <class T>
DEVICE void reduce_share(const Grid &g, const carillon_args &a, Operation &op, u32 channel, u32 peers) {
  const Shares shares = Shares::of(a, op);
  const Steps s = Steps::of(a, shares.share);
  u32 getters = 0;
  LOOP
  for (u32 k = 1; k < op.ranks; k++)
    if (!shares.scatter && a.send_to >> behind(a, op, k) & 1) getters |= 1u << k;
  Fifo parts = {}, results = {};
  if (peers) parts = open(a, carillon_fifo_parts, channel, peers, received);
  if (getters) results = open(a, carillon_fifo_shares, channel, getters, sent);
  for (u32 i = 0; i < s.n; i++, parts.step++, results.step++) {
    const u64 at = s.at(channel, i), bytes = s.rest(at, shares.of_rank(a.rank));
    if (peers && !data(g, a, op, parts, carillon_data, a.signature)) return;
    if (getters && !room(g, a, op, results)) return;
    Slice slice = {(u32)bytes, op.ranks, a.reduction, 0, a.rank, a.factor, {}, {}};
    slice.from[a.rank] = a.send + shares.at(a, a.rank) + at;
    if (a.recv_from) slice.to[slice.targets++] = a.recv + (shares.scatter ? 0 : a.rank * shares.share) + at;
    LOOP
    for (u32 k = 1; k < op.ranks; k++) {
      slice.from[behind(a, op, k)] = source(a, op, parts, k);
      if (getters >> k & 1) slice.to[slice.targets++] = target(a, op, results, k);
    }
    reduce_slice<T>(g, slice);
    g.sync();
    if (g.thread) continue;
    if (getters) raise(a, op, results, a.signature);
    if (peers) release(a, op, parts);
  }
  if (peers) close(g, a, parts, received);
  if (getters) close(g, a, results, sent);
}

// collect gives this rank the results of the others.
DEVICE void collect(const Grid &g, const carillon_args &a, Operation &op, u32 channel, u32 peers) {
  const Shares shares = Shares::of(a, op);
  const Steps s = Steps::of(a, shares.share);
  Fifo f = open(a, carillon_fifo_shares, channel, peers, received);
  for (u32 i = 0; i < s.n; i++, f.step++) {
    const u64 at = s.at(channel, i);
    if (!data(g, a, op, f, carillon_results, a.signature)) return;
    LOOP
    for (u32 k = 1; k < op.ranks; k++) {
      const u32 r = behind(a, op, k);
      copy(g, a.recv + r * shares.share + at, source(a, op, f, k), s.rest(at, shares.of_rank(r)));
    }
    g.sync();
    if (g.thread == 0) release(a, op, f);
  }
  close(g, a, f, received);
}

// reduce is all-reduce, reduce and reduce-scatter.
template <class T> DEVICE void reduce(const Grid &g, const carillon_args &a) {
  Operation op = begin(a, counts_of(g, a), a.ranks);
  announce(g, a, op);
  const u32 roles = 3, role = g.block % roles, channel = g.block / roles, peers = (1u << op.ranks) - 2;
  if (role == 0)
    reduce_share<T>(g, a, op, channel, peers);
  else if (role == 1 && peers)
    distribute<T>(g, a, op, channel, peers);
  else if (role == 2 && peers && a.recv_from && !a.send_stride)
    collect(g, a, op, channel, peers);
  end(g, a, op);
}

#define REDUCE(type, T)                                                                                                \
  KERNEL(carillon_reduce_##type) { reduce<T>(g, a); }

EACH_TYPE(REDUCE)
