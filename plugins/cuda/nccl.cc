#include "plugins/cuda/nccl.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <future>
#include <thread>

#include "horo/base/text.h"

namespace horo::cuda {

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kConfigMagic = 0xcafebeef, kConfigVersion = 21700;
/// How long an end may take before it is left to itself.
constexpr auto kEndLimit = std::chrono::milliseconds(500);

const std::vector<std::string>& names() {
  static const std::vector<std::string> all = {"libnccl.so.2", "libnccl.so"};
  return all;
}

#define HORO_NCCL_SYMBOL(name) symbol(#name, &all.name)

Result<Nccl> open_nccl() {
  HORO_ASSIGN(DynamicLibrary library, open_library(names()));
  Nccl all;
  const Symbol symbols[] = {
      HORO_NCCL_SYMBOL(ncclGetVersion),
      HORO_NCCL_SYMBOL(ncclGetUniqueId),
      HORO_NCCL_SYMBOL(ncclGetErrorString),
      HORO_NCCL_SYMBOL(ncclGetLastError),
      HORO_NCCL_SYMBOL(ncclCommInitRankConfig),
      HORO_NCCL_SYMBOL(ncclCommGetAsyncError),
      HORO_NCCL_SYMBOL(ncclCommFinalize),
      HORO_NCCL_SYMBOL(ncclCommDestroy),
      HORO_NCCL_SYMBOL(ncclCommAbort),
      HORO_NCCL_SYMBOL(ncclGroupStart),
      HORO_NCCL_SYMBOL(ncclGroupEnd),
      HORO_NCCL_SYMBOL(ncclAllReduce),
      HORO_NCCL_SYMBOL(ncclReduce),
      HORO_NCCL_SYMBOL(ncclBroadcast),
      HORO_NCCL_SYMBOL(ncclReduceScatter),
      HORO_NCCL_SYMBOL(ncclAllGather),
      HORO_NCCL_SYMBOL(ncclSend),
      HORO_NCCL_SYMBOL(ncclRecv),
  };
  if (Status bound = library.bind(symbols); !bound.ok()) return bound.prefixed("NCCL is too old, 2.18 is needed");
  all.file = library.name();
  all.ncclGetVersion(&all.version);
  if (all.version < Nccl::kOldest) {
    return Status(Code::kUnavailable,
                  text(all.file, " is NCCL ", all.version, ", 2.18 (", Nccl::kOldest, ") is needed"));
  }
  return all;
}

// Numbers of nccl.h, by those of horo.h; -1: none.
constexpr int kTypes[] = {1, 0, -1, -1, 3, 2, 5, 4, 6, 9, 7, 8, -1, 7, 8};
constexpr int kOperations[] = {0, 4, 3, 2, 1, -1, -1, -1};
constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 8, 16};
constexpr int kUint8 = 1;
enum : int { kF16 = 8, kF64 = 11, kC64 = 13, kC128 = 14 };
enum : int { kSum = 0, kAverage = 1, kMin = 2, kMax = 3 };

}  // namespace

const Result<Nccl>& nccl() {
  static const Result<Nccl> opened = open_nccl();
  return opened;
}

std::string describe_nccl() {
  if (DynamicLibrary::find_loaded(names()).ok()) {
    const Result<Nccl>& opened = nccl();
    return opened.ok() ? text(opened->version, " (", opened->file, ")") : opened.status().message();
  }
  for (const std::string& place : places(names())) {
    if (place.find('/') != std::string::npos) return text(place, ", opened when it is needed");
  }
  return "not found beside CUDA or torch; needed only where each rank has a GPU of its own";
}

bool nccl_reduces(int dtype, int op) {
  if (dtype < 0 || dtype > kC128 || op < 0 || op > 7 || kTypes[dtype] < 0 || kOperations[op] < 0) return false;
  if (dtype >= kC64) return op == kSum || op == kAverage;
  return dtype < kF16 || (op != kMin && op != kMax);
}

/// One operation in the words of NCCL.
struct Communicator::Call {
  const horo_device_collective& asked;
  CUstream stream;
  int type = kUint8;
  int op = 0;
  size_t unit = 1;  ///< Elements of `type` in an element.
  size_t size = 1;  ///< Bytes of an element.

  size_t count(uint64_t elements) const { return elements * unit; }
  const std::byte* in(uint64_t at) const { return static_cast<const std::byte*>(asked.in) + at * size; }
  std::byte* out(uint64_t at) const { return static_cast<std::byte*>(asked.out) + at * size; }
};

Status Communicator::check(ncclResult result, const char* what) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return {};
  const char* more = nccl_.ncclGetLastError(communicator_);
  return {Code::kUnavailable, text(what, " failed: ", nccl_.ncclGetErrorString(result),
                                   more == nullptr || *more == '\0' ? "" : text(" (", more, ")"))};
}

Result<bool> Communicator::outcome(ncclResult result, const char* what) const {
  HORO_TRY(check(result, what));
  return result == kNcclSuccess;
}

Result<std::unique_ptr<Communicator>> Communicator::open(const Nccl& library, Context& context, const ncclUniqueId& id,
                                                         int members, int member) {
  const Context::Use use(context);
  std::unique_ptr<Communicator> made(new Communicator(library, context, members, member));
  ncclConfig config{sizeof(ncclConfig), kConfigMagic, kConfigVersion, 0, INT_MIN, INT_MIN, INT_MIN, nullptr};
  HORO_TRY(made->check(library.ncclCommInitRankConfig(&made->communicator_, members, id, member, &config),
                       "ncclCommInitRankConfig"));
  return made;
}

Result<bool> Communicator::poll() const {
  ncclResult state = kNcclSuccess;
  HORO_TRY(check(nccl_.ncclCommGetAsyncError(communicator_, &state), "ncclCommGetAsyncError"));
  return outcome(state, "NCCL");
}

Result<bool> Communicator::run(Queue& queue, const horo_device_collective& collective) const {
  const Context::Use use(context_);
  Call call{collective, queue.stream()};
  const bool reduces = collective.kind == HORO_DEVICE_ALLREDUCE || collective.kind == HORO_DEVICE_REDUCE ||
                       collective.kind == HORO_DEVICE_REDUCESCATTER;
  if (reduces && !nccl_reduces(collective.dtype, collective.op)) {
    return Status(Code::kInvalidArgument,
                  text("NCCL has no reduction ", collective.op, " of element type ", collective.dtype));
  }
  // What is only moved moves as bytes.
  call.size = collective.dtype >= 0 && collective.dtype <= kC128 ? kSizes[collective.dtype] : 1;
  call.type = reduces ? kTypes[collective.dtype] : kUint8;
  call.unit = reduces ? (collective.dtype >= kC64 ? 2 : 1) : call.size;
  // The average of one is itself. NCCL multiplies it by 1, in up to 32 segments whose length it rounds down, and leaves
  // out what comes after the last of them: 17 of 70,001 floats.
  const bool itself = members_ == 1 && collective.op == kAverage;
  call.op = reduces ? kOperations[itself ? kSum : collective.op] : 0;
  return outcome(enqueue(call), "NCCL");
}

ncclResult Communicator::enqueue(const Call& call) const {
  const horo_device_collective& asked = call.asked;
  const auto even = [&] {
    return std::all_of(asked.counts, asked.counts + members_, [&](uint64_t one) { return one == asked.counts[0]; });
  };
  switch (asked.kind) {
    case HORO_DEVICE_ALLREDUCE:
      return nccl_.ncclAllReduce(asked.in, asked.out, call.count(asked.count), call.type, call.op, communicator_,
                                 call.stream);
    case HORO_DEVICE_REDUCE:
      return nccl_.ncclReduce(asked.in, asked.out, call.count(asked.count), call.type, call.op, asked.root,
                              communicator_, call.stream);
    case HORO_DEVICE_BROADCAST:
      return nccl_.ncclBroadcast(asked.in, asked.out, call.count(asked.count), call.type, asked.root, communicator_,
                                 call.stream);
    case HORO_DEVICE_REDUCESCATTER:
      if (!even()) return scatter_uneven(call);
      return nccl_.ncclReduceScatter(asked.in, asked.out, call.count(asked.counts[0]), call.type, call.op,
                                     communicator_, call.stream);
    case HORO_DEVICE_ALLGATHER:
      if (!even()) return gather_uneven(call);
      return nccl_.ncclAllGather(asked.in, asked.out, call.count(asked.counts[0]), call.type, communicator_,
                                 call.stream);
    default:
      return exchange(call);
  }
}

// Everybody's part is a broadcast, all of them in one group.
ncclResult Communicator::gather_uneven(const Call& call) const {
  ncclResult result = nccl_.ncclGroupStart();
  uint64_t at = 0;
  for (int m = 0; m < members_ && result == kNcclSuccess; at += call.asked.counts[m++]) {
    const uint64_t count = call.asked.counts[m];
    if (count == 0) continue;
    const void* from = m == member_ ? call.asked.in : call.out(at);
    result = nccl_.ncclBroadcast(from, call.out(at), call.count(count), call.type, m, communicator_, call.stream);
    if (result == kNcclInProgress) result = kNcclSuccess;
  }
  const ncclResult ended = nccl_.ncclGroupEnd();
  return result == kNcclSuccess ? ended : result;
}

// Everybody's part is a reduction to him.
ncclResult Communicator::scatter_uneven(const Call& call) const {
  ncclResult result = nccl_.ncclGroupStart();
  uint64_t at = 0;
  for (int m = 0; m < members_ && result == kNcclSuccess; at += call.asked.counts[m++]) {
    const uint64_t count = call.asked.counts[m];
    if (count == 0) continue;
    // Elsewhere nothing is received; a pointer is wanted all the same.
    void* to = m == member_ ? call.asked.out : const_cast<std::byte*>(call.in(at));
    result = nccl_.ncclReduce(call.in(at), to, call.count(count), call.type, call.op, m, communicator_, call.stream);
    if (result == kNcclInProgress) result = kNcclSuccess;
  }
  const ncclResult ended = nccl_.ncclGroupEnd();
  return result == kNcclSuccess ? ended : result;
}

// Gather, scatter, alltoall and a message: what this member sends to each, and receives from each.
ncclResult Communicator::exchange(const Call& call) const {
  const horo_device_collective& asked = call.asked;
  const bool root = member_ == asked.root;
  ncclResult result = nccl_.ncclGroupStart();
  const auto send = [&](uint64_t at, uint64_t count, int to) {
    if (count == 0 || result != kNcclSuccess) return;
    result = nccl_.ncclSend(call.in(at), call.count(count), call.type, to, communicator_, call.stream);
    if (result == kNcclInProgress) result = kNcclSuccess;
  };
  const auto receive = [&](uint64_t at, uint64_t count, int from) {
    if (count == 0 || result != kNcclSuccess) return;
    result = nccl_.ncclRecv(call.out(at), call.count(count), call.type, from, communicator_, call.stream);
    if (result == kNcclInProgress) result = kNcclSuccess;
  };
  uint64_t sent = 0, received = 0;
  switch (asked.kind) {
    case HORO_DEVICE_GATHER:
      send(0, asked.counts[member_], asked.root);
      for (int m = 0; root && m < members_; received += asked.counts[m++]) receive(received, asked.counts[m], m);
      break;
    case HORO_DEVICE_SCATTER:
      for (int m = 0; root && m < members_; sent += asked.counts[m++]) send(sent, asked.counts[m], m);
      receive(0, asked.counts[member_], asked.root);
      break;
    case HORO_DEVICE_ALLTOALL:
      for (int m = 0; m < members_; ++m) {
        send(sent, asked.counts[m], m);
        receive(received, asked.receive_counts[m], m);
        sent += asked.counts[m];
        received += asked.receive_counts[m];
      }
      break;
    case HORO_DEVICE_SENDRECV:
      if (root) send(0, asked.count, asked.target);
      if (member_ == asked.target) receive(0, asked.count, asked.root);
      break;
    default:
      result = 4;  // Invalid argument.
  }
  const ncclResult ended = nccl_.ncclGroupEnd();
  return result == kNcclSuccess ? ended : result;
}

// All has run when this is called. Every member must come for an end in order, so it has a limit, too.
void Communicator::end_in_order() const {
  const auto limit = Clock::now() + kEndLimit;
  ncclResult state = nccl_.ncclCommFinalize(communicator_);
  while (state == kNcclInProgress && Clock::now() < limit) {
    std::this_thread::yield();
    if (nccl_.ncclCommGetAsyncError(communicator_, &state) != kNcclSuccess) break;
  }
  if (state == kNcclSuccess) {
    nccl_.ncclCommDestroy(communicator_);
  } else {
    nccl_.ncclCommAbort(communicator_);
  }
}

void Communicator::end(std::unique_ptr<Communicator> communicator, bool abort) {
  if (communicator->communicator_ == nullptr) return;
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> ended = done->get_future();
  sigset_t all, before;  // Signals are the application's.
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread ending([done, abort, own = std::shared_ptr<Communicator>(std::move(communicator))] {
    {
      const Context::Use use(own->context_);
      if (abort) {
        own->nccl_.ncclCommAbort(own->communicator_);
      } else {
        own->end_in_order();
      }
    }
    done->set_value();  // After all that may wait for somebody: who joins does not.
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (ended.wait_for(2 * kEndLimit) == std::future_status::ready) {
    ending.join();
  } else {
    ending.detach();
  }
}

}  // namespace horo::cuda
