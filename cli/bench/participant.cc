#include "cli/bench/participant.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "cli/bench/pattern.h"

#include "horo/base/text.h"

namespace horo::bench {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
/// From this size on the processor time of single operations is read, which takes a system call.
constexpr size_t kCpuFrom = 64 << 10;

uint64_t nanoseconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
uint64_t wall() { return nanoseconds_of(CLOCK_MONOTONIC); }
double cpu() { return static_cast<double>(nanoseconds_of(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9; }

/// The two sides of a tensor. Memory is kept from command to command, as a program that trains keeps its own: what is
/// new to a process is slower, and making it is work that others would notice.
class Buffers {
 public:
  explicit Buffers(Participant& participant) : participant_(participant) {}
  ~Buffers() {
    for (bool library : {false, true}) {
      for (Block& block : blocks_[library ? 1 : 0]) drop(block, library);
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  Status prepare(size_t input, size_t output, bool library) {
    const size_t wanted[] = {input, output};
    for (size_t side : {0, 1}) {
      Block& block = blocks_[library ? 1 : 0][side];
      if (block.bytes < std::max<size_t>(wanted[side], 1)) {
        drop(block, library);
        HORO_ASSIGN(block.memory, make(std::max<size_t>(wanted[side], 1), library));
        block.bytes = std::max<size_t>(wanted[side], 1);
      }
      sides_[side] = {block.memory, wanted[side]};
    }
    return {};
  }
  std::span<std::byte> input() const { return sides_[0]; }
  std::span<std::byte> output() const { return sides_[1]; }

 private:
  struct Block {
    std::byte* memory = nullptr;
    size_t bytes = 0;
  };
  Result<std::byte*> make(size_t bytes, bool library) {
    if (library) return participant_.allocate(bytes);
    // Ordinary memory, aligned as large allocations of a framework are.
    void* memory = std::aligned_alloc(bytes >= kHugePage ? 4096 : 64, (bytes + 4095) / 4096 * 4096);
    if (memory == nullptr) return Status(Code::kUnavailable, text("no memory for a tensor of ", bytes_text(bytes)));
    std::memset(memory, 1, bytes);
    return static_cast<std::byte*>(memory);
  }
  void drop(Block& block, bool library) {
    if (block.memory != nullptr && library) participant_.release(block.memory);
    if (block.memory != nullptr && !library) std::free(block.memory);
    block = {};
  }

  Participant& participant_;
  Block blocks_[2][2];  ///< Ordinary and the library's; input and output.
  std::span<std::byte> sides_[2];
};

class Measurement {
 public:
  Measurement(Participant& participant, Buffers& buffers, Pattern& pattern, const Command& command)
      : participant_(participant),
        buffers_(buffers),
        pattern_(pattern),
        command_(command),
        // A broadcast has one buffer. Sums of sums grow without limit, so that batches keep input and output apart.
        in_place_(command.op == Op::kBroadcast || (command.in_place && command.mode == Mode::kLatency)) {}

  Result<Reply> run() {
    if (command_.op == Op::kWait || command_.op == Op::kIdle) return waits();
    const Extent elements = extent(command_.op, command_.count, participant_.size(), participant_.rank());
    const size_t size = size_of(command_.dtype);
    const size_t output_bytes = in_place_ ? 0 : elements.output * size;
    HORO_TRY(buffers_.prepare(elements.input * size, output_bytes, command_.library));
    Reply reply;
    HORO_TRY(command_.mode == Mode::kBatch ? batches(reply) : singles(reply));
    reply.transport = participant_.transport();
    reply.algorithm = participant_.algorithm();
    return reply;
  }

 private:
  std::span<std::byte> output() const { return in_place_ ? buffers_.input() : buffers_.output(); }

  /// `spoil`: what the last turn left in the output must not pass for a result of this one.
  void fill(uint64_t turn, bool spoil) {
    constexpr uint64_t kOtherData = 1'000'003;
    const bool receives = command_.op == Op::kBroadcast && participant_.rank() != 0;
    pattern_.fill(buffers_.input(), participant_.rank(), turn + (receives ? kOtherData : 0));
    if (!in_place_ && spoil) pattern_.fill(buffers_.output(), participant_.rank(), turn + kOtherData);
  }

  Status check(uint64_t turn) {
    if (pattern_.holds(command_.op, output(), participant_.rank(), turn)) return {};
    return Status(Code::kCorrupt, text("WRONG RESULT of ", name(command_.op), " of ", command_.count, " ",
                                       name(command_.dtype), " on rank ", participant_.rank()));
  }

  Status singles(Reply& reply) {
    const bool with_cpu = buffers_.input().size() + output().size() >= 2 * kCpuFrom;
    // The first turn warms up.
    for (int turn = -1; turn < command_.iterations; ++turn) {
      const auto number = static_cast<uint64_t>(turn) + 1;
      const bool checked = turn == command_.iterations - 1 || turn == 0;
      fill(number, checked);
      const double cpu_before = with_cpu ? cpu() : 0;
      HORO_TRY(participant_.barrier());
      const uint64_t start = wall();
      HORO_TRY(participant_.run(command_, buffers_.input().data(), output().data()));
      const uint64_t end = wall();
      if (turn < 0) continue;
      if (with_cpu) reply.cpu_seconds += cpu() - cpu_before;
      reply.nanoseconds.push_back(end - start);
      if (checked) HORO_TRY(check(number));
    }
    return {};
  }

  /// Rank 0 comes late to an operation (kWait), or nobody calls for a while (kIdle): the processor time of this rank,
  /// all threads together, from the barrier before to the end.
  Result<Reply> waits() {
    Reply reply;
    Command one = command_;
    one.op = Op::kAllreduce;
    one.dtype = DType::kF32;
    one.count = 1;
    const float input = 1;
    float output = 0;
    for (int turn = 0; turn < command_.iterations; ++turn) {
      HORO_TRY(participant_.barrier());
      const uint64_t before = nanoseconds_of(CLOCK_PROCESS_CPUTIME_ID);
      if (command_.op == Op::kIdle || participant_.rank() == 0) be_away(command_.count);
      if (command_.op == Op::kWait) {
        HORO_TRY(
            participant_.run(one, reinterpret_cast<const std::byte*>(&input), reinterpret_cast<std::byte*>(&output)));
        if (output != static_cast<float>(participant_.size()))
          return Status(Code::kCorrupt, "WRONG RESULT after a wait");
      }
      reply.nanoseconds.push_back(nanoseconds_of(CLOCK_PROCESS_CPUTIME_ID) - before);
    }
    return reply;
  }
  /// This is the lateness that is measured, and no wait for anybody.
  static void be_away(uint64_t microseconds) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable().wait_for(lock, std::chrono::microseconds(microseconds), [] { return false; });
  }

  Status batches(Reply& reply) {
    for (int batch = -1; batch < kBatches; ++batch) {
      const auto number = static_cast<uint64_t>(batch) + 1;
      fill(number, true);
      HORO_TRY(participant_.barrier());
      const double cpu_before = cpu();
      const uint64_t start = wall();
      for (int i = 0; i < command_.iterations; ++i) {
        HORO_TRY(participant_.run(command_, buffers_.input().data(), output().data()));
      }
      const uint64_t end = wall();
      HORO_TRY(check(number));
      if (batch < 0) continue;
      reply.cpu_seconds += cpu() - cpu_before;
      reply.nanoseconds.push_back((end - start) / static_cast<uint64_t>(command_.iterations));
    }
    return {};
  }

  Participant& participant_;
  Buffers& buffers_;
  Pattern& pattern_;
  const Command command_;
  const bool in_place_;
};

/// The two pipes of a rank.
class Pipes {
 public:
  Pipes(int rank, const std::string& folder)
      : commands_(text(folder, "/commands.", rank)),
        replies_(open(text(folder, "/replies.", rank).c_str(), O_WRONLY | O_CLOEXEC)) {}
  ~Pipes() { close(replies_); }

  bool next(std::string& line) { return static_cast<bool>(std::getline(commands_, line)) && line != "quit"; }
  bool say(std::string line) {
    line += '\n';
    for (size_t done = 0; done < line.size();) {
      const ssize_t written = write(replies_, line.data() + done, line.size() - done);
      if (written <= 0) return false;
      done += static_cast<size_t>(written);
    }
    return true;
  }

 private:
  std::ifstream commands_;
  int replies_;
};

Reply reply_to(const Status& status) {
  Reply reply;
  reply.kind = status.code() == Code::kUnavailable ? Reply::Kind::kUnsupported : Reply::Kind::kError;
  reply.message = status.to_string();
  return reply;
}

}  // namespace

Result<std::byte*> Participant::allocate(size_t) {
  return Status(Code::kUnavailable, "this library has no memory of its own");
}
void Participant::release(std::byte*) {}

int serve(Participant& participant, const std::string& folder) {
  Pipes pipes(participant.rank(), folder);
  Buffers buffers(participant);
  std::optional<Pattern> pattern;
  std::pair<DType, uint64_t> made_for;
  Reply ready;
  ready.transport = participant.transport();
  if (!pipes.say(encode(ready))) return 1;
  for (std::string line; pipes.next(line);) {
    auto command = decode_command(line);
    if (!command.ok()) return 1;
    // From here on: whatever this rank does for the command is not the work of others.
    const double cpu_before = cpu();
    const std::pair wanted(command->dtype, command->seed);
    if (!pattern || wanted != made_for) pattern.emplace(command->dtype, command->seed, participant.size());
    made_for = wanted;
    auto reply = Measurement(participant, buffers, *pattern, *command).run();
    if (reply.ok()) reply->total_cpu = cpu() - cpu_before;
    const bool broken = !reply.ok() && reply.status().code() != Code::kUnavailable;
    if (!pipes.say(encode(reply.ok() ? *reply : reply_to(reply.status()))) || broken) return 1;
  }
  return 0;
}

int refuse(int rank, const std::string& folder, const std::string& why) {
  Pipes pipes(rank, folder);
  Reply reply;
  reply.kind = Reply::Kind::kError;
  reply.message = why;
  pipes.say(encode(reply));
  return 1;
}

}  // namespace horo::bench
