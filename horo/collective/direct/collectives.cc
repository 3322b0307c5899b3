#include "horo/collective/direct/collectives.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>

#include "horo/base/text.h"
#include "horo/collective/direct/allreduce.h"
#include "horo/collective/direct/stream.h"
#include "horo/kernel/reduce.h"

namespace horo::collective::direct {

namespace {

using Bytes = std::vector<uint64_t>;
using Pieces = std::span<const std::byte* const>;

/// Blocks of several members one after the other: how long each is and where it begins.
struct Blocks {
  Blocks(const std::vector<uint64_t>& counts, size_t element) {
    uint64_t at = 0;
    for (uint64_t count : counts) {
      begin.push_back(at);
      bytes.push_back(count * element);
      at += count * element;
    }
    total = at;
    longest = bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
  }
  Bytes begin, bytes;
  uint64_t total = 0, longest = 0;
};

/// One operation on its way through.
struct Run {
  Protocol& protocol;
  const Call& call;
  const Operation& operation;
  const std::byte* in;
  std::byte* out;

  size_t element() const { return size_of(operation.dtype); }
  size_t rank() const { return static_cast<size_t>(protocol.rank()); }
  size_t size() const { return static_cast<size_t>(protocol.size()); }
  bool is_root() const { return protocol.rank() == operation.root; }
  size_t exchange_limit() const { return protocol.thresholds().slot_bytes; }
  /// Whether one exchange does it where one gives, or one takes, `total` bytes, and nobody brings more than `brought`.
  bool exchanges_one_way(uint64_t total, uint64_t brought) const {
    return size() == 2 ? total <= protocol.thresholds().pair_one_way_bytes : brought <= exchange_limit();
  }
};

void copy_unless_same(std::byte* to, const std::byte* from, size_t bytes) {
  if (to != from) kernel::copy(to, from, bytes, kernel::Placement::kCached);
}

std::vector<bool> only(size_t size, int member) {
  std::vector<bool> all(size, false);
  all[static_cast<size_t>(member)] = true;
  return all;
}

/// Where blocks begin that lie in `out` one after the other; null where there is no output.
std::vector<std::byte*> places_of(std::byte* out, const Blocks& blocks) {
  std::vector<std::byte*> places(blocks.begin.size(), nullptr);
  for (size_t member = 0; out != nullptr && member < places.size(); ++member)
    places[member] = out + blocks.begin[member];
  return places;
}

Status stream(const Run& run, const Flow& flow) {
  Stream stream(run.protocol, run.call, flow);
  HORO_TRY(stream.meet());
  return stream.run();
}

// Broadcast, and sendrecv, where only the target takes.
Status broadcast(const Run& run, bool takes) {
  const uint64_t bytes = run.operation.count * run.element();
  const auto root = static_cast<size_t>(run.operation.root);
  if (run.exchanges_one_way(bytes, bytes)) {
    HORO_TRY(run.protocol.exchange(run.call, {run.in, run.is_root() ? bytes : 0}, bytes));
    if (takes)
      copy_unless_same(run.out, run.is_root() ? run.in : run.protocol.contribution(run.operation.root, bytes), bytes);
    return {};
  }
  Flow flow;
  if (run.is_root()) flow.give = {{run.in, bytes}};
  flow.piece = short_piece_bytes(run.protocol, bytes);
  flow.take.assign(run.size(), 0);
  flow.take[root] = takes && !(run.is_root() && run.in == run.out) ? bytes : 0;
  flow.contributes = only(run.size(), run.operation.root);
  flow.to.assign(run.size(), run.out);
  return stream(run, flow);
}

// Allgather, and gather, where only the root takes.
Status gather(const Run& run, bool takes) {
  const Blocks blocks(run.operation.counts, run.element());
  const uint64_t own = blocks.bytes[run.rank()];
  const bool to_root = run.operation.kind == Kind::kGather;
  const bool for_others = !to_root || !run.is_root();
  if (to_root ? run.exchanges_one_way(blocks.total, blocks.longest) : blocks.longest <= run.exchange_limit()) {
    HORO_TRY(run.protocol.exchange(run.call, {run.in, for_others ? own : 0}, blocks.longest));
    for (size_t member = 0; takes && member < run.size(); ++member) {
      const bool mine = member == run.rank();
      copy_unless_same(run.out + blocks.begin[member],
                       mine ? run.in : run.protocol.contribution(static_cast<int>(member), blocks.longest),
                       blocks.bytes[member]);
    }
    return {};
  }
  Flow flow;
  flow.give = {{run.in, own}};
  flow.for_others = for_others;
  if (to_root) flow.piece = short_piece_bytes(run.protocol, blocks.longest);
  flow.take = takes ? blocks.bytes : Bytes(run.size(), 0);
  flow.contributes.assign(run.size(), true);
  flow.to = places_of(run.out, blocks);
  // More takers share what is copied once, while it is in cache.
  if (!to_root && run.size() == 2) flow.begins.assign(run.size(), 0);
  return stream(run, flow);
}

Status scatter(const Run& run) {
  const Blocks blocks(run.operation.counts, run.element());
  const auto root = static_cast<size_t>(run.operation.root);
  const uint64_t own = blocks.bytes[run.rank()];
  const uint64_t roots = blocks.bytes[root];
  const uint64_t for_others = blocks.total - roots;
  if (run.exchanges_one_way(blocks.total, for_others)) {
    if (run.is_root()) {
      const std::byte* block = run.in + blocks.begin[root];
      const std::byte* after = block + roots;
      HORO_TRY(run.protocol.exchange(run.call, {run.in, block}, for_others, {after, run.in + blocks.total}));
      copy_unless_same(run.out, block, roots);
      return {};
    }
    HORO_TRY(run.protocol.exchange(run.call, {}, for_others));
    const uint64_t left_out = run.rank() > root ? roots : 0;
    const std::byte* all = run.protocol.contribution(run.operation.root, for_others);
    copy_unless_same(run.out, all + blocks.begin[run.rank()] - left_out, own);
    return {};
  }
  Flow flow;
  flow.per_taker = true;
  flow.piece = std::min(short_piece_bytes(run.protocol, blocks.longest), piece_bytes(run.protocol, true));
  for (size_t taker = 0; run.is_root() && taker < run.size(); ++taker) {
    flow.give.emplace_back(run.in + blocks.begin[taker], blocks.bytes[taker]);
  }
  flow.take.assign(run.size(), 0);
  flow.take[root] = own;
  flow.contributes = only(run.size(), run.operation.root);
  flow.to.assign(run.size(), run.out);
  if (run.size() == 2) flow.begins.assign(run.size(), blocks.begin[run.rank()]);
  return stream(run, flow);
}

/// The counts of an alltoall as all members see them: what each sends to each. Every member checks all of it, so that
/// all of them fail if two disagree.
Result<std::vector<uint64_t>> exchange_counts(const Run& run) {
  const size_t n = run.size();
  std::vector<uint64_t> mine = run.operation.counts;
  mine.insert(mine.end(), run.operation.receive_counts.begin(), run.operation.receive_counts.end());
  const auto bytes = std::as_bytes(std::span(mine));
  HORO_TRY(run.protocol.exchange(run.call, bytes, bytes.size()));
  std::vector<uint64_t> sent(n * n), received(n * n);
  for (size_t member = 0; member < n; ++member) {
    const std::byte* theirs = run.protocol.contribution(static_cast<int>(member), bytes.size());
    std::memcpy(&sent[member * n], theirs, n * sizeof(uint64_t));
    std::memcpy(&received[member * n], theirs + n * sizeof(uint64_t), n * sizeof(uint64_t));
  }
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      if (sent[from * n + to] == received[to * n + from]) continue;
      const auto& names = run.protocol.space().names;
      return Status(Code::kMismatch, text("operation ", run.call.number, " (alltoall): rank ", names[from], " sends ",
                                          sent[from * n + to], " elements to rank ", names[to], ", which expects ",
                                          received[to * n + from]))
          .with_operation(run.call.number);
    }
  }
  return sent;
}

/// Where the block for this member begins in what each member sends.
Bytes begins_for(const Run& run, const std::vector<uint64_t>& sent) {
  const size_t n = run.size();
  Bytes begins;
  for (size_t member = 0; member < n; ++member) {
    const uint64_t* row = &sent[member * n];
    begins.push_back(std::accumulate(row, row + run.rank(), uint64_t{0}) * run.element());
  }
  return begins;
}

/// Members bring all but the blocks for themselves.
Status alltoall_exchanged(const Run& run, const std::vector<uint64_t>& sent, const Blocks& give, const Blocks& take,
                          uint64_t longest) {
  const size_t n = run.size(), rank = run.rank();
  const uint64_t after = give.begin[rank] + give.bytes[rank];
  HORO_TRY(run.protocol.exchange(run.call, {run.in, give.begin[rank]}, longest, {run.in + after, give.total - after}));
  const Bytes begins = begins_for(run, sent);
  for (size_t i = 1; i <= n; ++i) {
    const size_t member = (rank + i) % n;
    const std::byte* block = run.in + begins[member];
    if (member != rank) {
      const uint64_t left_out = member < rank ? sent[member * n + member] * run.element() : 0;
      block = run.protocol.contribution(static_cast<int>(member), longest) + begins[member] - left_out;
    }
    copy_unless_same(run.out + take.begin[member], block, take.bytes[member]);
  }
  return {};
}

Status alltoall(const Run& run) {
  HORO_ASSIGN(const std::vector<uint64_t> sent, exchange_counts(run));
  const size_t n = run.size();
  const Blocks give(run.operation.counts, run.element());
  const Blocks take(run.operation.receive_counts, run.element());
  uint64_t longest = 0;
  for (size_t from = 0; from < n; ++from) {
    longest = std::max(longest, std::accumulate(&sent[from * n], &sent[from * n] + n, uint64_t{0}) * run.element());
  }
  if (longest <= run.exchange_limit()) return alltoall_exchanged(run, sent, give, take, longest);
  Flow flow;
  flow.per_taker = true;
  for (size_t taker = 0; taker < n; ++taker) flow.give.emplace_back(run.in + give.begin[taker], give.bytes[taker]);
  flow.take = take.bytes;
  flow.contributes.assign(n, true);
  flow.to = places_of(run.out, take);
  flow.begins = begins_for(run, sent);
  return stream(run, flow);
}

kernel::Scaling scaling(const Run& run) {
  kernel::Scaling all = scaling_after(run.operation, run.protocol.size());
  all.factor *= run.operation.prescale;
  return all;
}

kernel::Placement reduced_placement_of(const Run& run, uint64_t input_bytes, uint64_t result_bytes) {
  const Thresholds& limits = run.protocol.thresholds();
  if (result_bytes >= limits.stream_bytes()) return kernel::Placement::kStreamed;
  if (input_bytes >= limits.stream_bytes()) return kernel::Placement::kFetched;
  return run.protocol.size() == 2 ? limits.near() : kernel::Placement::kCached;
}

/// Tells the others, who are at the first meeting or come to it.
Status no_memory(const Run& run, const char* to, uint64_t bytes) {
  return run.protocol.refuse(run.call, {Code::kUnavailable, text("no memory to ", to, " of ", bytes_text(bytes))});
}

/// Neither may be null where it has bytes.
bool lie_on_each_other(const std::byte* a, uint64_t a_bytes, const std::byte* b, uint64_t b_bytes) {
  std::less<const std::byte*> before;
  return a_bytes > 0 && b_bytes > 0 && before(a, b + b_bytes) && before(b, a + a_bytes);
}

Status reduce_scatter(const Run& run) {
  const Blocks blocks(run.operation.counts, run.element());
  const uint64_t own = blocks.bytes[run.rank()];
  const auto combine = kernel::combine_many(run.operation.dtype, run.operation.op, kernel::best(),
                                            reduced_placement_of(run, blocks.total, own));
  const kernel::Scaling after = scaling(run);
  if (blocks.total <= run.protocol.thresholds().slot_bytes_many) {
    HORO_TRY(run.protocol.exchange(run.call, {run.in, blocks.total}, blocks.total));
    std::vector<const std::byte*> inputs;
    for (size_t member = 0; member < run.size(); ++member) {
      const bool mine = member == run.rank();
      const std::byte* all = mine ? run.in : run.protocol.contribution(static_cast<int>(member), blocks.total);
      inputs.push_back(all + blocks.begin[run.rank()]);
    }
    combine(run.out, inputs, own / run.element(), after);
    return {};
  }
  Flow flow;
  flow.per_taker = true;
  for (size_t taker = 0; taker < run.size(); ++taker) {
    flow.give.emplace_back(run.in + blocks.begin[taker], blocks.bytes[taker]);
  }
  flow.take.assign(run.size(), own);
  flow.contributes.assign(run.size(), true);
  // Results that would land on inputs still to be given wait until the operation is decided.
  const bool overlaps = lie_on_each_other(run.out, own, run.in, blocks.total);
  std::unique_ptr<std::byte[]> held(overlaps ? new (std::nothrow) std::byte[own] : nullptr);
  if (overlaps && !held) return no_memory(run, "hold a result", own);
  std::byte* to = overlaps ? held.get() : run.out;
  const uint64_t piece = piece_bytes(run.protocol, true);
  flow.consume = [&](uint64_t offset, Pieces pieces) {
    combine(to + offset, pieces, std::min(piece, own - offset) / run.element(), after);
  };
  HORO_TRY(stream(run, flow));
  if (overlaps) std::memcpy(run.out, to, own);
  return {};
}

Status reduce(const Run& run, std::byte* out) {
  const Reduction reduction{run.in, out, run.operation.count, run.operation.dtype, run.operation.op, scaling(run)};
  return allreduce(run.protocol, run.call, reduction);
}

Status dispatch(const Run& run);

/// Elements that this member gives to one of the kinds that only move data.
uint64_t given(const Run& run) {
  switch (run.operation.kind) {
    case Kind::kAllgather:
    case Kind::kGather:
      return run.operation.counts[run.rank()];
    case Kind::kScatter:
      return run.is_root() ? run.operation.total() : 0;
    case Kind::kAlltoall:
      return run.operation.total();
    default:
      return 0;  // The others look after it themselves.
  }
}

// A result that would land on inputs which are still to be given, or which a failure must leave alone, waits apart
// until the operation is decided.
Status dispatch_apart(const Run& run) {
  const uint64_t bytes = run.operation.result_count(run.protocol.rank()) * run.element();
  std::unique_ptr<std::byte[]> held(new (std::nothrow) std::byte[bytes]);
  if (!held) return no_memory(run, "hold a result", bytes);
  HORO_TRY(dispatch({run.protocol, run.call, run.operation, run.in, held.get()}));
  std::memcpy(run.out, held.get(), bytes);
  return {};
}

/// Whether the output begins to be written while it still is input. An allgather or gather whose input lies where it
/// belongs in the output is not such a case.
bool overlaps(const Run& run) {
  const Operation& operation = run.operation;
  const uint64_t in_bytes = given(run) * run.element();
  const uint64_t out_bytes = operation.result_count(run.protocol.rank()) * run.element();
  if (operation.kind == Kind::kAllgather || operation.kind == Kind::kGather) {
    const auto before =
        std::accumulate(operation.counts.begin(), operation.counts.begin() + run.protocol.rank(), uint64_t{0});
    if (run.in == run.out + before * run.element()) return false;
  }
  return lie_on_each_other(run.out, out_bytes, run.in, in_bytes);
}

Status dispatch(const Run& run) {
  if (overlaps(run)) return dispatch_apart(run);
  switch (run.operation.kind) {
    case Kind::kBarrier:
      return run.protocol.meet(run.call, {});
    case Kind::kAllreduce:
      return reduce(run, run.out);
    case Kind::kReduce:
      return reduce(run, run.is_root() ? run.out : nullptr);
    case Kind::kReduceScatter:
      return reduce_scatter(run);
    case Kind::kAllgather:
      return gather(run, true);
    case Kind::kGather:
      return gather(run, run.is_root());
    case Kind::kScatter:
      return scatter(run);
    case Kind::kBroadcast:
      return broadcast(run, true);
    case Kind::kSendRecv:
      return broadcast(run, run.protocol.rank() == run.operation.target);
    case Kind::kAlltoall:
      return alltoall(run);
    case Kind::kRefused:
      break;
  }
  return Status(Code::kInternal, text(transport::name(run.operation.kind), " has no direct form"));
}

/// Whether scaling the sum gives what scaling the inputs would.
bool can_scale_afterwards(const Operation& operation) {
  return (is_float(operation.dtype) || is_complex(operation.dtype)) &&
         (operation.op == ReduceOp::kSum || operation.op == ReduceOp::kAverage);
}

Status scale_and_dispatch(const Run& run) {
  const Operation& operation = run.operation;
  if (operation.prescale == 1.0 || !operation.reduces() || can_scale_afterwards(operation)) return dispatch(run);
  const uint64_t bytes = operation.total_bytes();
  std::unique_ptr<std::byte[]> scaled(new (std::nothrow) std::byte[bytes]);
  if (!scaled) return no_memory(run, "scale an input", bytes);
  kernel::scale(operation.dtype)(scaled.get(), run.in, operation.total(), scaling_before(operation));
  Operation rest = operation;
  rest.prescale = 1.0;
  const uint64_t result = operation.result_count(run.protocol.rank()) * run.element();
  if (!lie_on_each_other(run.out, result, run.in, bytes)) {
    return dispatch({run.protocol, run.call, rest, scaled.get(), run.out});
  }
  // The caller's tensor, which a failure must leave alone, is written when the operation is decided.
  HORO_TRY(dispatch({run.protocol, run.call, rest, scaled.get(), scaled.get()}));
  std::memcpy(run.out, scaled.get(), result);
  return {};
}

}  // namespace

Status run(Protocol& protocol, const Call& call, const Operation& operation, const std::byte* in, std::byte* out) {
  kernel::DefaultFloatMode float_mode;
  Status status = scale_and_dispatch({protocol, call, operation, in, out});
  // Whatever this member has not read it will never read: nobody needs to wait for that. (A wait for this word does not
  // end with the group, because a result that is decided may still have to be read.)
  if (!status.ok()) protocol.words(protocol.rank()).taken.word.advance(protocol.count(transport::kMaxSteps));
  return status;
}

}  // namespace horo::collective::direct
