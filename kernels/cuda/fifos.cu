// Large messages, and send/receive: directly (direct.h), or through FIFOs in the receiver's window.
//
// A channel is a set of blocks with different roles, and the FIFOs between the blocks of a channel on different ranks.
// Data is dealt to the channels in steps.
//
// A block's first warp leads: its first thread waits for other ranks, prepares a task, and signals other ranks when the
// task is done. The other warps do the tasks, one step behind, so that neither waits for the other.

#include "direct.h"

// Steps says how a buffer is dealt to channels: the same at both ends.
struct Steps {
  u64 bytes;
  u32 channels, step, n; // step: bytes; n: steps of a channel

  GENERIC static Steps of(const carillon_args &a, u32 channels, u64 bytes) {
    Steps s = {bytes, 0, 0, 0};
    const u64 slices = divided_up(bytes, a.slot < (u32)carillon_slice ? a.slot : (u32)carillon_slice);
    s.channels = slices < channels ? (u32)slices : channels;
    if (s.channels == 0) return s;
    const u64 each = divided_up(divided_up(bytes, s.channels), sizeof(Vector)) * sizeof(Vector);
    s.step = each < a.slot ? (u32)each : a.slot;
    s.n = (u32)divided_up(bytes, (u64)s.step * s.channels);
    return s;
  }

  GENERIC u64 at(u32 channel, u32 i) const { return ((u64)i * channels + channel) * step; }

  // rest returns how many of a buffer's bytes a step at some offset has.
  GENERIC u64 rest(u64 at, u64 of) const { return at >= of ? 0 : of - at < step ? of - at : step; }
};

enum Direction : u32 { sent, received };

// Fifo is one end of a block's FIFOs to or from some ranks, which advance together. It belongs to the block's leader.
struct Fifo {
  u32 kind, channel;
  u32 peers; // distances after this rank, as bits
  u32 step;  // steps since the launch
  u32 done;  // steps that the peers were told of
  u32 begin[carillon_max_ranks];

  // next returns the position of the next slot to or from the rank k after this one, last that of the next slot to
  // signal.
  GENERIC u32 next(u32 k) const { return begin[k] + step; }
  GENERIC u32 last(u32 k) const { return begin[k] + done; }

  // lane returns the lane of the rank k after this one in this rank's window, back that of this rank in the other's
  // window.
  GENERIC u32 lane(u32 k) const { return (channel * carillon_fifos + kind) * (carillon_max_ranks - 1) + k - 1; }
  GENERIC u32 back(const Operation &op, u32 k) const { return lane(op.ranks - k); }

  GENERIC u64 position_at(const carillon_args &a, u32 k, Direction d) const {
    return a.state + carillon_positions + lane(k) * 8 + d * 4;
  }

  GENERIC void open(const carillon_args &a, u32 of_kind, u32 of_channel, u32 to, Direction d) {
    kind = of_kind, channel = of_channel, peers = to, step = done = 0;
    LOOP
    for (u32 k = 1; k < a.ranks; k++)
      if (peers >> k & 1) begin[k] = load_u32(position_at(a, k, d));
  }

  GENERIC void close(const carillon_args &a, Direction d) const {
    LOOP
    for (u32 k = 1; k < a.ranks; k++)
      if (peers >> k & 1) *reinterpret_cast<u32 *>(position_at(a, k, d)) = next(k);
  }
};

DEVICE u64 flag_at(const carillon_args &a, u32 lane, u32 position) {
  return control(a) + carillon_flags + (lane * carillon_slots + position % carillon_slots) * 4;
}

DEVICE u64 credit_at(const carillon_args &a, u32 lane) { return control(a) + carillon_credits + lane * 4; }

// slot_at returns where a slot is in the window of a rank that gets it from the rank `back` after it. Windows only have
// room for the existing ranks.
DEVICE u64 slot_at(const carillon_args &a, const Operation &op, const Fifo &f, u32 back, u32 position) {
  const u32 fifo = (f.channel * carillon_fifos + f.kind) * (op.ranks - 1) + back - 1;
  return control(a) + carillon_control + ((u64)fifo * carillon_slots + position % carillon_slots) * a.slot;
}

// target returns where the next slot for the rank k after this one is written, source where the next slot from it is
// read.
DEVICE u64 target(const carillon_args &a, const Operation &op, const Fifo &f, u32 k) {
  return a.window[k] + slot_at(a, op, f, op.ranks - k, f.next(k));
}

DEVICE u64 source(const carillon_args &a, const Operation &op, const Fifo &f, u32 k) {
  return a.window[0] + slot_at(a, op, f, k, f.next(k));
}

DEVICE u64 position_at(const carillon_args &a, u32 lane, Direction d) {
  return a.state + carillon_positions + lane * 8 + d * 4;
}

// await waits for something from each peer, and returns false if the block must give up.
template <class Here>
DEVICE bool await(const Grid &g, const carillon_args &a, Operation &op, const Fifo &f, u32 phase, Here &&here) {
  u32 missing = f.peers;
  return wait(g, a, op, phase, [&](Missing &m) {
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
}

// room waits until all peers have room for one more slot.
DEVICE bool room(const Grid &g, const carillon_args &a, Operation &op, const Fifo &f) {
  return await(g, a, op, f, carillon_room, [&](u32 k, Missing &) {
    return (i32)(f.next(k) - load_flag(a.window[0] + credit_at(a, f.lane(k)))) < carillon_slots;
  });
}

DEVICE u32 flag_of(u32 position, u32 signature) { return (position + 1) << 8 | signature; }

// data waits until the next slot from all peers is there.
DEVICE bool data(const Grid &g, const carillon_args &a, Operation &op, const Fifo &f, u32 phase, u32 signature) {
  return await(g, a, op, f, phase, [&](u32 k, Missing &m) {
    m.flag = flag_of(f.next(k), signature), m.seen = load_flag(a.window[0] + flag_at(a, f.lane(k), f.next(k)));
    return m.seen == m.flag;
  });
}

// raise signals to all peers that a slot is there. All threads have written it before a barrier.
DEVICE void raise(const carillon_args &a, const Operation &op, Fifo &f, u32 signature) {
  fence();
  LOOP
  for (u32 k = 1; k < op.ranks; k++)
    if (f.peers >> k & 1)
      store_flag(a.window[k] + flag_at(a, f.back(op, k), f.last(k)), flag_of(f.last(k), signature));
  f.done++;
}

// release returns a slot to all peers. All threads have read it before a barrier.
DEVICE void release(const carillon_args &a, const Operation &op, Fifo &f) {
  LOOP
  for (u32 k = 1; k < op.ranks; k++)
    if (f.peers >> k & 1) store_flag(a.window[k] + credit_at(a, f.back(op, k)), f.last(k) + 1);
  f.done++;
}

// Block is a block's shared memory: the kernel parameter, which only constants may index in its original place, tasks,
// and the leader's state.
template <class Args, class Lead> struct Block {
  Args args;
  Meeting meeting;
  Task tasks[2];
  Lead lead;

  GENERIC static Block &begin(const Grid &g, const Args &args) {
    Block &block = g.shared<Block>();
    auto *to = reinterpret_cast<u64 *>(&block.args);
    auto *from = reinterpret_cast<const u64 *>(&args);
    LOOP
    for (u32 i = g.thread; i < sizeof args / sizeof *to; i += g.threads) to[i] = from[i];
    g.sync();
    return block;
  }

  // in_steps does the block's tasks, one after the other. lead.prepare waits until the next task can be done and sets
  // it, or returns false if there is none; lead.tell is called when a task is done.
  template <class Work> GENERIC void in_steps(const Grid &g, Operation &op, Work &&work) {
    for (u32 i = 0;; i++) {
      Task &next = tasks[i % 2], &last = tasks[(i + 1) % 2];
      const bool there = i == 0 || last.there, left = i > 0 && last.left;
      if (g.thread == 0) {
        if (i >= 2) lead.tell(args, op, next.signature);
        next.targets = 0;
        next.there = there && lead.prepare(g, args, op, next);
        next.left = op.left;
      } else if (g.thread >= warp && i > 0 && there) {
        work(Workers{g.thread - warp, g.threads - warp}, last);
      }
      g.sync();
      if (there) continue;
      op.left = left;
      if (!left && g.thread == 0) lead.close(args);
      return;
    }
  }
};

// Transfer leads a block that sends messages to a rank, or receives messages from it.
struct Transfer {
  u32 k, message, end; // the remaining messages
  Direction direction;
  Fifo f;
  Steps steps; // steps of the first message
  u32 step;

  GENERIC void open(const carillon_exchange_args &list, u32 channel, u32 role) {
    k = (role + 1) / 2, direction = role % 2 ? sent : received, step = 0;
    const u32 l = direction == sent ? k : carillon_max_ranks + k;
    message = list.first[l], end = list.first[l + 1];
    f.open(list.common, carillon_fifo_messages, channel, 1u << k, direction);
  }

  GENERIC bool prepare(const Grid &g, const carillon_exchange_args &list, Operation &op, Task &t) {
    for (;; message++, step = 0) {
      if (message == end) return false;
      if (step == 0) steps = Steps::of(list.common, list.common.channels, list.messages[message].bytes >> 8);
      if (f.channel < steps.channels && step < steps.n) break;
    }
    const carillon_args &a = list.common;
    const carillon_message m = list.messages[message];
    const u64 at = steps.at(f.channel, step++), bytes = steps.rest(at, steps.bytes);
    t.signature = m.bytes & 0xff;
    if (direction == sent) {
      if (!room(g, a, op, f)) return false;
      t.copy(target(a, op, f, k), m.at + at, bytes);
    } else {
      if (!data(g, a, op, f, carillon_data, t.signature)) return false;
      t.copy(m.at + at, source(a, op, f, k), bytes);
    }
    f.step++;
    return true;
  }

  GENERIC void tell(const carillon_exchange_args &list, const Operation &op, u32 signature) {
    if (direction == sent)
      raise(list.common, op, f, signature);
    else
      release(list.common, op, f);
  }

  GENERIC void close(const carillon_exchange_args &list) { f.close(list.common, direction); }
};

// exchange sends and receives lists of messages: send and receive, all-gather, all-to-all, broadcast, gather,
// scatter. A channel has a block for each list, so that no message waits for another rank's.
DEVICE void exchange(const Grid &g, Block<carillon_exchange_args, Transfer> &block, Operation &op) {
  const carillon_exchange_args &list = block.args;
  const u32 roles = 2 * op.ranks - 1, role = g.block % roles, channel = g.block / roles, channels = g.blocks / roles;
  if (role == 0) {
    for (u32 i = 0; g.thread >= warp && list.first[0] + i < list.first[1]; i++) {
      const carillon_message from = list.messages[list.first[0] + i];
      const carillon_message to = list.messages[list.first[carillon_max_ranks] + i];
      const u64 bytes = from.bytes >> 8, part = divided_up(bytes, (u64)channels * 16) * 16, at = channel * part;
      if (from.at != to.at && at < bytes)
        copy({g.thread - warp, g.threads - warp}, to.at + at, from.at + at, bytes - at < part ? bytes - at : part);
    }
  } else {
    if (g.thread == 0) block.lead.open(list, channel, role);
    block.in_steps(g, op, [](const Workers &w, const Task &t) { copy_all(w, t); });
  }
}

KERNEL_WITH(carillon_exchange, carillon_exchange_args) {
  const carillon_counts before = counts_of(g, a.common);
  const u32 round = load_u32(rounds_at(g, a.common)) + 1;
  enter(g, a.common, a.reach, round);
  auto &block = Block<carillon_exchange_args, Transfer>::begin(g, a);
  const carillon_args &common = block.args.common;
  Operation op = begin(common, before, common.ranks);
  announce(g, common, op);
  Task &task = block.tasks[0];
  const Met met = meet(
      g, common, block.args.reach, op, round, block.meeting, [] {},
      [&] { plan_copies(common, op, block.meeting, task); });
  if (met == Met::directly)
    copy_directly(g, common, op, block.meeting, task);
  else if (met == Met::staged)
    exchange(g, block, op);
  if (UNLIKELY(op.left) && met != Met::staged) give_up(g.self(), common, block.meeting);
  end(g, common, op);
}

// Reduction leads a block of a reduction: a block distributes this rank's buffer, reduces its share, or collects the
// results of the others. If ranks have met, results are written directly to their destinations, and no block collects.
struct Reduction {
  enum Role { reduces, distributes, collects, roles };

  Role role;
  const Meeting *met; // or null
  Shares shares;
  Steps steps;
  u32 channel, step;
  Fifo in, out; // with peers if the role uses them

  GENERIC static u32 blocks_of_channel(const Meeting *met) { return met ? (u32)collects : (u32)roles; }

  GENERIC void open(const Grid &g, const carillon_args &a, const Operation &op, const Meeting *meeting) {
    const u32 each = blocks_of_channel(meeting), most = g.blocks / each;
    role = (Role)(g.block % each), met = meeting, channel = g.block / each, step = 0;
    shares = Shares::of(a, op);
    steps = Steps::of(a, met ? (most < carillon_max_channels ? most : (u32)carillon_max_channels) : a.channels,
                      shares.share);
    if (channel >= steps.channels) steps.n = 0;
    const u32 peers = (1u << op.ranks) - 2;
    u32 getters = 0; // ranks that get results
    LOOP
    for (u32 k = 1; k < op.ranks; k++)
      if (!met && !shares.scatter && a.send_to >> behind(a, op, k) & 1) getters |= 1u << k;
    const bool gets = !met && a.recv_from && !shares.scatter;
    in.open(a, role == reduces ? carillon_fifo_parts : carillon_fifo_shares, channel,
            role == reduces || (role == collects && gets) ? peers : 0, received);
    out.open(a, role == reduces ? carillon_fifo_shares : carillon_fifo_parts, channel,
             role == reduces ? getters : role == distributes ? peers : 0, sent);
  }

  GENERIC bool prepare(const Grid &g, const carillon_reduce_args &args, Operation &op, Task &t) {
    const carillon_args &a = args.common;
    if (step == steps.n || (role != reduces && !(in.peers | out.peers))) return false;
    const u64 at = steps.at(channel, step++);
    const u32 phase = role == reduces ? carillon_data : carillon_results;
    t.signature = a.signature;
    if (in.peers && !data(g, a, op, in, phase, a.signature)) return false;
    if (out.peers && !room(g, a, op, out)) return false;
    if (role == reduces) {
      t.sources = op.ranks;
      t.bytes[0] = (u32)steps.rest(at, shares.of_rank(a.rank));
      t.from[a.rank] = a.send + shares.at(a, a.rank) + at;
      if (a.recv_from) t.to[t.targets++] = a.recv + (shares.scatter ? 0 : a.rank * shares.share) + at;
    }
    LOOP
    for (u32 k = 1; k < op.ranks; k++) {
      const u32 r = behind(a, op, k);
      const u64 bytes = steps.rest(at, shares.of_rank(r));
      if (role == reduces) {
        t.from[r] = source(a, op, in, k);
        if (met)
          t.to[t.targets++] = met->at[carillon_recv][r] + a.rank * shares.share + at;
        else if (out.peers >> k & 1)
          t.to[t.targets++] = target(a, op, out, k);
      } else if (role == distributes) {
        t.copy(target(a, op, out, k), a.send + shares.at(a, r) + at, bytes);
      } else {
        t.copy(a.recv + r * shares.share + at, source(a, op, in, k), bytes);
      }
    }
    in.step++, out.step++;
    return true;
  }

  GENERIC void tell(const carillon_reduce_args &args, const Operation &op, u32 signature) {
    if (out.peers) raise(args.common, op, out, signature);
    if (in.peers) release(args.common, op, in);
  }

  GENERIC void close(const carillon_reduce_args &args) const {
    in.close(args.common, received);
    out.close(args.common, sent);
  }
};

// reduce is all-reduce, reduce and reduce-scatter.
template <class T>
DEVICE void reduce(const Grid &g, Block<carillon_reduce_args, Reduction> &block, Operation &op, const Meeting *met) {
  const carillon_args &a = block.args.common;
  const auto role = (Reduction::Role)(g.block % Reduction::blocks_of_channel(met));
  if (g.thread == 0) block.lead.open(g, a, op, met);
  block.in_steps(g, op, [&](const Workers &w, const Task &t) {
    if (role == Reduction::reduces)
      reduce_all<T>(w, a, t);
    else if (role == Reduction::distributes && a.reduction == carillon_premul_sum)
      scale_all<T>(w, a, t);
    else
      copy_all(w, t);
  });
}

template <class T> DEVICE void reduce_either_way(const Grid &g, const carillon_reduce_args &given) {
  const carillon_counts before = counts_of(g, given.common);
  const u32 round = load_u32(rounds_at(g, given.common)) + 1;
  enter(g, given.common, given.reach, round);
  auto &block = Block<carillon_reduce_args, Reduction>::begin(g, given);
  const carillon_args &a = block.args.common;
  Operation op = begin(a, before, a.ranks);
  announce(g, a, op);
  Task &task = block.tasks[0];
  const Met met = meet(
      g, a, block.args.reach, op, round, block.meeting, [&] { plan_reduction(g, a, op, task); },
      [&] { follow_up(a, op, block.meeting, task); });
  const bool pushed = met == Met::directly && block.args.reach.pushes;
  if (met == Met::staged || pushed)
    reduce<T>(g, block, op, pushed ? &block.meeting : nullptr);
  else if (met == Met::directly)
    reduce_directly<T>(g, a, op, block.meeting, task);
  if (pushed && !op.left) part(g, a, op, block.meeting, true);
  if (UNLIKELY(op.left) && met != Met::staged) give_up(g.self(), a, block.meeting);
  end(g, a, op);
}

#define REDUCE(type, T)                                                                                                \
  KERNEL_WITH(carillon_reduce_##type, carillon_reduce_args) { reduce_either_way<T>(g, a); }

EACH_TYPE(REDUCE)
