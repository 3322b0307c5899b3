#include "cli/bench/rank.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "cli/bench/participant.h"
#include "cli/bench/stream.h"

#include "horo/api/horo.h"
#include "horo/base/config.h"
#include "horo/base/text.h"
#include "horo/kernel/reduce.h"

namespace horo::bench {

namespace {

/// Takes over `status`. A resource that is short ends the bench's rank too: it is no missing feature of horo.
Status taken(horo_status* status) {
  if (status == nullptr) return {};
  const auto code = static_cast<Code>(horo_status_code(status));
  Status result(code == Code::kUnavailable ? Code::kInternal : code, horo_status_message(status));
  horo_status_free(status);
  return result;
}

class HoroRank final : public Participant {
 public:
  explicit HoroRank(horo_engine* engine) : engine_(engine), world_(horo_engine_world(engine)) {}
  ~HoroRank() override { horo_engine_destroy(engine_); }

  int rank() const override { return horo_engine_rank(engine_); }
  int size() const override { return horo_engine_size(engine_); }
  Status barrier() override { return taken(horo_barrier(world_)); }
  std::string transport() const override { return horo_group_transport(world_); }
  std::string algorithm() const override { return horo_group_algorithm(world_); }

  Status run(const Command& command, const std::byte* input, std::byte* output) override {
    const auto dtype = static_cast<horo_dtype>(command.dtype);
    const uint64_t share = command.count / static_cast<uint64_t>(size());
    switch (command.op) {
      case Op::kAllreduce:
        return taken(horo_allreduce(world_, input, output, command.count, dtype, HORO_SUM));
      case Op::kBroadcast:
        return taken(horo_broadcast(world_, output, command.count, dtype, 0));
      case Op::kAllgather:
        return taken(horo_allgather(world_, input, output, share, dtype));
      case Op::kReducescatter:
        return taken(horo_reducescatter(world_, input, output, share, dtype, HORO_SUM));
      case Op::kAlltoall:
        return taken(horo_alltoall(world_, input, output, share, dtype));
      case Op::kBarrier:
        return taken(horo_barrier(world_));
      case Op::kCopy:
        return copy(command, input, output);
      case Op::kStream:
        return stream(command, input, output);
      case Op::kGather:
        return one(HORO_GATHER, dtype, share, input, output);
      case Op::kScatter:
        return one(HORO_SCATTER, dtype, share, input, output);
      case Op::kSendRecv:
        return one(HORO_SENDRECV, dtype, command.count, input, output);
      default:  // kReduce; kWait and kIdle are made of others.
        return one(HORO_REDUCE, dtype, command.count, input, output);
    }
  }

  Result<std::byte*> allocate(size_t bytes) override {
    void* memory = nullptr;
    HORO_TRY(taken(horo_buffer_allocate(engine_, bytes, &memory)));
    std::memset(memory, 1, bytes);
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) override { horo_buffer_free(engine_, memory); }

 private:
  Status one(horo_kind kind, horo_dtype dtype, uint64_t count, const std::byte* input, std::byte* output) {
    horo_operation operation = HORO_OPERATION_INIT;
    operation.kind = kind;
    operation.dtype = dtype;
    operation.count = count;
    operation.target = size() - 1;
    const std::vector<uint64_t> counts(static_cast<size_t>(size()), count);
    if (kind == HORO_GATHER || kind == HORO_SCATTER) operation.counts = counts.data();
    return taken(horo_group_run(world_, &operation, input, output));
  }

  /// `library` means: past the cache. The bench takes the faster of both as the limit.
  static Status copy(const Command& command, const std::byte* input, std::byte* output) {
    const size_t bytes = command.count * size_of(command.dtype);
    if (command.library) {
      kernel::copy(output, input, bytes, kernel::Placement::kStreamed);
    } else {
      std::memcpy(output, input, bytes);
    }
    return {};
  }

  Status stream(const Command& command, const std::byte* input, std::byte* output) {
    if (!stream_) {
      HORO_ASSIGN(Stream made, Stream::meet(rank(), size(), world_));
      stream_.emplace(std::move(made));
    }
    const size_t bytes = command.count * size_of(command.dtype);
    return stream_->exchange({input, bytes}, {output, bytes});
  }

  horo_engine* engine_;
  horo_group* world_;
  std::optional<Stream> stream_;
};

}  // namespace

int run_bench_rank(const std::string& folder) {
  horo_engine* engine = nullptr;
  const horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
  const Status started = taken(horo_engine_start(&options, &engine));
  if (!started.ok()) {
    const auto rank = Environment::of_process().find("HORO_RANK");
    return refuse(std::atoi(rank.value_or("0").c_str()), folder, started.to_string());
  }
  HoroRank participant(engine);
  return serve(participant, folder);
}

}  // namespace horo::bench
