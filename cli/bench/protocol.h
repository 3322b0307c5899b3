// What `horo bench` and the ranks it measures say to each other: one line of text per command and per reply.
//
// Every rank, of horo and of each peer, reads commands from the named pipe `commands.RANK` and writes replies to
// `replies.RANK`, both in a folder that the bench makes. A rank that waits for a command sleeps in read(2), so that it
// does not disturb the one that is measured, and ends when the pipe does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/dtype.h"
#include "horo/base/status.h"

namespace horo::bench {

enum class Op : uint8_t {
  kAllreduce,
  kReduce,
  kBroadcast,
  kAllgather,
  kReducescatter,
  kAlltoall,
  kGather,
  kScatter,
  kSendRecv,  ///< From the first to the last rank.
  kBarrier,
  kCopy,    ///< Every rank copies the tensor from one place to another: the limit of memory. Of horo's ranks only.
  kStream,  ///< The first and the last rank send the tensor to each other over one plain TCP connection. The same.
  kWait,    ///< Rank 0 comes `count` microseconds late: the processor time of a wait.
  kIdle,    ///< Nobody calls anything for `count` microseconds: the processor time of that.
  kEngine,  ///< Negotiated execution; never sent, its ranks have a program of their own.
};

std::string_view name(Op op);
std::optional<Op> op_named(std::string_view name);
/// The names of the collectives: what comes before kCopy.
std::vector<std::string> collective_names();

enum class Mode : uint8_t {
  kLatency,  ///< Each operation after a barrier, on new data.
  kBatch,    ///< Operations back to back, input and output apart; one time per batch, divided by its operations.
};

/// How often a batch is repeated.
inline constexpr int kBatches = 5;

struct Command {
  Op op = Op::kAllreduce;
  Mode mode = Mode::kLatency;
  DType dtype = DType::kF32;
  uint64_t count = 1;  ///< Elements of the tensor: see Extent. kWait, kIdle: microseconds.
  int iterations = 1;  ///< kBatch: operations per batch.
  bool in_place = true;
  bool library = false;  ///< In buffers allocated by horo.
  uint64_t seed = 1;
};

/// The elements on both sides of one rank. The tensor of an allgather is its output, of a reducescatter its input, of a
/// gather and a scatter what the root, rank 0, has.
struct Extent {
  uint64_t input = 0;
  uint64_t output = 0;
};
Extent extent(Op op, uint64_t count, int ranks, int rank);
/// Whether input and output differ, so that they cannot be the same memory.
bool lies_apart(Op op);
/// The nearest number of elements, upward, that every rank has an equal share of; at least one each.
uint64_t whole_count(Op op, uint64_t bytes, DType dtype, int ranks);

struct Reply {
  enum class Kind : uint8_t { kOk, kUnsupported, kError } kind = Kind::kOk;
  std::string message;                ///< Of kUnsupported and kError.
  std::string transport;              ///< "shm"
  std::string algorithm;              ///< "direct"
  double cpu_seconds = 0;             ///< User and system, of the measured operations and their barriers.
  double total_cpu = 0;               ///< Of everything from command to reply: memory, filling and checking as well.
  std::vector<uint64_t> nanoseconds;  ///< Of each operation, or each batch; processor time of each kWait and kIdle.
};

/// Without the newline.
std::string encode(const Command& command);
Result<Command> decode_command(std::string_view line);
std::string encode(const Reply& reply);
Result<Reply> decode_reply(std::string_view line);

}  // namespace horo::bench
