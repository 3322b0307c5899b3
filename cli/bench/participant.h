// A rank that is measured: what horo and each peer implement, and the loop that obeys the bench's commands.
#pragma once

#include <cstddef>
#include <string>

#include "cli/bench/protocol.h"

#include "horo/base/status.h"

namespace horo::bench {

/// kUnavailable from run() or allocate() means "cannot do that": the bench leaves it out and says so.
class Participant {
 public:
  virtual ~Participant() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Status barrier() = 0;
  /// One operation, with SUM where something is summed and rank 0 as root. `input` is `output` when in place.
  virtual Status run(const Command& command, const std::byte* input, std::byte* output) = 0;
  /// Aligned memory of the library under test. Called only for commands with `library`.
  virtual Result<std::byte*> allocate(size_t bytes);
  virtual void release(std::byte* memory);
  /// What moved the bytes last: "shm", "tcp"; and how: "direct".
  virtual std::string transport() const = 0;
  virtual std::string algorithm() const { return {}; }
};

/// Opens the pipes in `folder`, says that it is ready, and measures until the bench closes them. The exit code.
int serve(Participant& participant, const std::string& folder);
/// For a rank that could not start: tells the bench why. The exit code.
int refuse(int rank, const std::string& folder, const std::string& why);

}  // namespace horo::bench
