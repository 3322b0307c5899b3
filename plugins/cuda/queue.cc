#include "plugins/cuda/queue.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "horo/base/text.h"

namespace horo::cuda {

namespace {

/// A thread that the device wakes is late by as much as a step of an operation takes (measured: 560 us of 960 us that 2
/// ranks take for 256 MiB with MPS), so it looks for a while, giving way to others between two looks.
constexpr auto kLook = std::chrono::milliseconds(1);
constexpr uint64_t kTableBytes = 256 << 10;

/// As in kernels.cu.
struct Piece {
  void* to;
  const void* from;
  uint64_t bytes;
  uint64_t first;
};
struct Few {
  Piece pieces[kFewPieces];
};
struct Terms {
  double before, factor;
  int64_t divisor;
};
struct Sources {
  const void* from[kMostSources];
};

enum : int { kF32 = 10, kF64 = 11, kC64 = 13, kC128 = 14 };

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

std::string copies() { return text("HORO_COPY CAPACITY=", kFewPieces); }

}  // namespace

// Of the highest priority: what comes between two steps of an operation makes all ranks wait. And without the implicit
// waiting for the default stream.
Result<std::unique_ptr<Queue>> Queue::open(Context& context) {
  const Context::Use use(context);
  std::unique_ptr<Queue> made(new Queue(context));
  const Driver& driver = context.driver();
  int least = 0, greatest = 0;
  driver.cuCtxGetStreamPriorityRange(&least, &greatest);
  HORO_TRY(check(driver, driver.cuStreamCreateWithPriority(&made->stream_, kStreamNonBlocking, greatest),
                 "cuStreamCreateWithPriority"));
  HORO_TRY(
      check(driver, driver.cuEventCreate(&made->done_, kEventDisableTiming | kEventBlockingSync), "cuEventCreate"));
  return made;
}

Queue::~Queue() {
  const Context::Use use(context_);
  if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
  if (done_ != nullptr) driver_.cuEventDestroy(done_);
  release_table();
  if (guard_memory_ != 0) driver_.cuMemFree(guard_memory_);
}

void Queue::release_table() {
  if (table_ != 0) driver_.cuMemFree(table_);
  if (table_host_ != nullptr) driver_.cuMemFreeHost(table_host_);
  table_ = 0;
  table_host_ = nullptr;
  table_bytes_ = 0;
}

Status Queue::wait(CUevent event) {
  const Context::Use use(context_);
  return check(driver_, driver_.cuStreamWaitEvent(stream_, event, 0), "cuStreamWaitEvent");
}

Status Queue::launch(CUfunction function, uint64_t blocks, void** arguments) {
  const auto most = static_cast<uint64_t>(context_.processors()) * 8;
  return check(driver_,
               driver_.cuLaunchKernel(function, static_cast<unsigned>(std::clamp<uint64_t>(blocks, 1, most)), 1, 1,
                                      kThreads, 1, 1, 0, stream_, arguments, nullptr),
               "cuLaunchKernel");
}

Result<CUdeviceptr> Queue::upload(const void* table, uint64_t bytes) {
  if (table_used_ + bytes > table_bytes_) {
    if (table_used_ > 0) HORO_TRY(finish(false));
    if (bytes > table_bytes_) {
      release_table();
      const uint64_t wanted = std::max(kTableBytes, 2 * bytes);
      HORO_TRY(check(driver_, driver_.cuMemAlloc(&table_, wanted), "cuMemAlloc"));
      HORO_TRY(check(driver_, driver_.cuMemHostAlloc(&table_host_, wanted, kHostPortable), "cuMemHostAlloc"));
      table_bytes_ = wanted;
    }
  }
  std::byte* from = static_cast<std::byte*>(table_host_) + table_used_;
  const CUdeviceptr to = table_ + table_used_;
  std::memcpy(from, table, bytes);
  HORO_TRY(check(driver_, driver_.cuMemcpyAsync(to, address(from), bytes, stream_), "cuMemcpyAsync"));
  table_used_ += (bytes + 255) / 256 * 256;
  return to;
}

Status Queue::copy(std::span<const horo_device_copy> pieces) {
  const Context::Use use(context_);
  std::vector<Piece> table;
  uint64_t chunks = 0;
  for (const horo_device_copy& piece : pieces) {
    if (piece.bytes == 0 || piece.to == piece.from) continue;
    table.push_back({piece.to, piece.from, piece.bytes, chunks});
    chunks += (piece.bytes + kChunk - 1) / kChunk;
  }
  if (table.empty()) return {};
  auto count = static_cast<uint32_t>(table.size());
  if (table.size() <= kFewPieces) {
    Few few{};
    std::copy(table.begin(), table.end(), few.pieces);
    HORO_ASSIGN(CUfunction function, context_.kernel({copies(), "copy_few"}));
    void* arguments[] = {&few, &count, &chunks, &guard_};
    return launch(function, chunks, arguments);
  }
  HORO_ASSIGN(CUfunction function, context_.kernel({copies(), "copy_many"}));
  HORO_ASSIGN(CUdeviceptr uploaded, upload(table.data(), table.size() * sizeof(Piece)));
  void* arguments[] = {&uploaded, &count, &chunks, &guard_};
  return launch(function, chunks, arguments);
}

Status Queue::transfer(void* to, const void* from, uint64_t bytes) {
  const Context::Use use(context_);
  return check(driver_, driver_.cuMemcpyAsync(address(to), address(from), bytes, stream_), "cuMemcpyAsync");
}

Status Queue::reduce(const horo_device_reduction& reduction) {
  const Context::Use use(context_);
  if (reduction.sources == 0 || reduction.sources > kMostSources) {
    return {Code::kInvalidArgument, text("a reduction of ", reduction.sources, " arrays")};
  }
  int dtype = reduction.dtype;
  uint64_t count = reduction.count;
  if (dtype == kC64 || dtype == kC128) {  // Sums of complex numbers are sums of their parts.
    dtype = dtype == kC64 ? kF32 : kF64;
    count *= 2;
  }
  constexpr uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1};
  if (dtype < 0 || dtype > 12) return {Code::kInvalidArgument, text("there is no reduction of element type ", dtype)};
  const uint64_t size = kSizes[dtype], width = 16 / size;
  Sources sources{};
  uint64_t bits = address(reduction.to) | address(reduction.also);
  for (size_t i = 0; i < reduction.sources; ++i) {
    sources.from[i] = reduction.from[i];
    bits |= address(reduction.from[i]);
  }
  auto inputs = static_cast<uint32_t>(reduction.sources);
  Terms terms{reduction.before, reduction.factor, reduction.divisor};
  const std::string defines = text("HORO_REDUCE CAPACITY=", kMostSources, " DTYPE=", dtype, " OP=", reduction.op,
                                   " SOURCES=", reduction.sources <= 4 ? reduction.sources : 0);
  uint64_t packs = bits % 16 == 0 ? count / width : 0;
  void* to = reduction.to;
  void* also = reduction.also;
  if (packs > 0) {
    HORO_ASSIGN(CUfunction function, context_.kernel({defines, "reduce_wide"}));
    void* arguments[] = {&sources, &inputs, &to, &also, &packs, &terms, &guard_};
    HORO_TRY(launch(function, (packs + 2 * kThreads - 1) / (2 * kThreads), arguments));
  }
  uint64_t rest = count - packs * width;
  if (rest == 0) return {};
  const uint64_t at = packs * 16;
  for (size_t i = 0; i < reduction.sources; ++i) sources.from[i] = static_cast<const std::byte*>(sources.from[i]) + at;
  to = static_cast<std::byte*>(to) + at;
  if (also != nullptr) also = static_cast<std::byte*>(also) + at;
  HORO_ASSIGN(CUfunction function, context_.kernel({defines, "reduce_one"}));
  void* arguments[] = {&sources, &inputs, &to, &also, &rest, &terms, &guard_};
  return launch(function, (rest + kThreads - 1) / kThreads, arguments);
}

Status Queue::mark() {
  const Context::Use use(context_);
  HORO_TRY(check(driver_, driver_.cuEventRecord(done_, stream_), "cuEventRecord"));
  table_used_ = 0;  // No table is put here before poll() has said that this has run.
  return {};
}

Result<bool> Queue::poll() const {
  const Context::Use use(context_);
  const CUresult state = driver_.cuEventQuery(done_);
  if (state == kNotReady) return false;
  HORO_TRY(check(driver_, state, "cuEventQuery"));
  return true;
}

Result<Context::Event*> Queue::record() {
  const Context::Use use(context_);
  HORO_ASSIGN(Context::Event * taken, context_.take_event());
  const Status recorded = check(driver_, driver_.cuEventRecord(taken->event, stream_), "cuEventRecord");
  if (recorded.ok()) return taken;
  Context::give_back(taken);
  return recorded;
}

Status Queue::signal(uint32_t* word, uint32_t value) {
  const Context::Use use(context_);
  return check(driver_, driver_.cuStreamWriteValue32_v2(stream_, address(word), value, kWriteAfterAllElse),
               "cuStreamWriteValue32");
}

Status Queue::hold(const uint32_t* word, uint32_t value) {
  const Context::Use use(context_);
  HORO_TRY(check(driver_, driver_.cuStreamWaitValue32_v2(stream_, address(word), value, kWaitUntilAtLeast),
                 "cuStreamWaitValue32"));
  return look_again();
}

Status Queue::guard(const uint32_t* word) {
  const Context::Use use(context_);
  guarding_ = word;
  guard_ = 0;
  if (word == nullptr) return {};
  const bool first = guard_memory_ == 0;
  if (first) HORO_TRY(check(driver_, driver_.cuMemAlloc(&guard_memory_, sizeof *word), "cuMemAlloc"));
  guard_ = guard_memory_;
  return first ? look_again() : Status();
}

Status Queue::look_again() {
  if (guard_ == 0) return {};
  HORO_ASSIGN(CUfunction function, context_.kernel({copies(), "look_again"}));
  void* arguments[] = {&guarding_, &guard_};
  return check(driver_, driver_.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_, arguments, nullptr),
               "cuLaunchKernel");
}

Status Queue::finish(bool may_spin) {
  HORO_TRY(mark());
  return await(may_spin);
}

Status Queue::await(bool may_spin) const {
  const Context::Use use(context_);
  const auto limit = std::chrono::steady_clock::now() + kLook;
  do {
    const CUresult state = driver_.cuEventQuery(done_);
    if (state != kNotReady) return check(driver_, state, "cuEventQuery");
    if (!may_spin) sched_yield();
  } while (std::chrono::steady_clock::now() < limit);
  return check(driver_, driver_.cuEventSynchronize(done_), "cuEventSynchronize");
}

}  // namespace horo::cuda
