// gloo over its TCP transport, full mesh, meeting through files.
//
// `launch` forks the ranks; each of them serves the bench until its commands end.
#include <fcntl.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <vector>

#include "bench/peers/launch.h"
#include "cli/bench/participant.h"

#include "horo/base/text.h"

namespace horo::bench {

namespace {

class GlooRank final : public Participant {
 public:
  GlooRank(int rank, int size, const std::string& address, const std::string& folder) : rank_(rank), size_(size) {
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()));
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(store, device);
    context_ = context;
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string transport() const override { return "tcp"; }

  Status barrier() override {
    return guarded([&] {
      gloo::BarrierOptions options(context_);
      gloo::barrier(options);
    });
  }

  Status run(const Command& command, const std::byte* input, std::byte* output) override {
    switch (command.dtype) {
      case DType::kF32:
        return typed<float>(command, input, output);
      case DType::kF64:
        return typed<double>(command, input, output);
      case DType::kI32:
        return typed<int32_t>(command, input, output);
      case DType::kI64:
        return typed<int64_t>(command, input, output);
      case DType::kF16:
        return typed<gloo::float16>(command, input, output);
      default:
        return Status(Code::kUnavailable, text("gloo has no sum of ", name(command.dtype)));
    }
  }

 private:
  template <class Call>
  static Status guarded(const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      return Status(Code::kInternal, text("gloo: ", error.what()));
    }
    return {};
  }

  template <class T>
  Status typed(const Command& command, const std::byte* from, std::byte* to) {
    auto* input = const_cast<T*>(reinterpret_cast<const T*>(from));
    auto* output = reinterpret_cast<T*>(to);
    const size_t count = command.count;
    const size_t share = count / static_cast<size_t>(size_);
    void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<T>;
    switch (command.op) {
      case Op::kAllreduce:
        return guarded([&] {
          gloo::AllreduceOptions options(context_);
          if (input != output) options.setInput(input, count);
          options.setOutput(output, count);
          options.setReduceFunction(sum);
          gloo::allreduce(options);
        });
      case Op::kReduce:
        return guarded([&] {
          gloo::ReduceOptions options(context_);
          options.setRoot(0);
          if (input != output) options.setInput(input, count);
          options.setOutput(output, count);
          options.setReduceFunction(sum);
          gloo::reduce(options);
        });
      case Op::kBroadcast:
        return guarded([&] {
          gloo::BroadcastOptions options(context_);
          options.setRoot(0);
          options.setOutput(output, count);
          gloo::broadcast(options);
        });
      case Op::kAllgather:
        return guarded([&] {
          gloo::AllgatherOptions options(context_);
          options.setInput(input, share);
          options.setOutput(output, count);
          gloo::allgather(options);
        });
      case Op::kAlltoall:
        return guarded([&] {
          gloo::AlltoallOptions options(context_);
          options.setInput(input, count);
          options.setOutput(output, count);
          gloo::alltoall(options);
        });
      case Op::kGather:
        return guarded([&] {
          gloo::GatherOptions options(context_);
          options.setRoot(0);
          options.setInput(input, share);
          if (rank_ == 0) options.setOutput(output, count);
          gloo::gather(options);
        });
      case Op::kScatter:
        return guarded([&] {
          gloo::ScatterOptions options(context_);
          options.setRoot(0);
          std::vector<T*> blocks;
          for (int rank = 0; rank_ == 0 && rank < size_; ++rank) {
            blocks.push_back(input + share * static_cast<size_t>(rank));
          }
          if (rank_ == 0) options.setInputs(blocks, share);
          options.setOutput(output, share);
          gloo::scatter(options);
        });
      case Op::kSendRecv:
        return guarded([&] { pass_on(count * sizeof(T), input, output); });
      case Op::kBarrier:
        return barrier();
      default:
        return Status(Code::kUnavailable, text("gloo has no ", name(command.op)));
    }
  }

  /// From the first to the last rank.
  void pass_on(size_t bytes, void* input, void* output) {
    constexpr uint64_t kSlot = 0;
    const int last = size_ - 1;
    std::unique_ptr<gloo::transport::UnboundBuffer> from, into;
    if (rank_ == 0) from = context_->createUnboundBuffer(input, bytes);
    if (rank_ == last) into = context_->createUnboundBuffer(output, bytes);
    if (from) from->send(last, kSlot);
    if (into) into->recv(0, kSlot);
    if (into) into->waitRecv();
    if (from) from->waitSend();
  }

  int rank_;
  int size_;
  std::shared_ptr<gloo::Context> context_;
};

/// `ip netns` keeps the namespaces of hosts there.
bool move_to(const PeerHost& host) {
  const int fd = open(("/run/netns/" + host.name_space).c_str(), O_RDONLY | O_CLOEXEC);
  return fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
}

int run_rank(const Launch& launch, int rank) {
  const PeerHost* host = launch.host_of(rank);
  if (host != nullptr && !move_to(*host)) return refuse(rank, launch.folder, "cannot enter " + host->name_space);
  try {
    GlooRank participant(rank, launch.ranks, host == nullptr ? "127.0.0.1" : host->address, launch.folder + "/store");
    return serve(participant, launch.folder);
  } catch (const std::exception& error) {
    return refuse(rank, launch.folder, text("gloo: ", error.what()));
  }
}

int launch_all(const Launch& launch) {
  std::filesystem::create_directory(launch.folder + "/store");
  return fork_ranks(launch, [&](int rank) { return run_rank(launch, rank); });
}

}  // namespace

}  // namespace horo::bench

int main(int argc, char** argv) {
  if (argc < 4 || std::string(argv[1]) != "launch") {
    std::fprintf(stderr, "usage: %s launch FOLDER RANKS [--tcp] [--yield] [--host NAMESPACE ADDRESS]...\n", argv[0]);
    return 2;
  }
  return horo::bench::launch_all(horo::bench::read_launch({argv + 2, argv + argc}));
}
