// Ordered messages between the members of one group: what a plan is executed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/kernel/reduce.h"
#include "horo/transport/signature.h"
#include "horo/transport/undo.h"

namespace horo::transport {

/// Where received bytes go: copied to `into`, or, with `combine`, into[i] = with[i] op received[i].
/// `with` may be `into`. `element_bytes` keeps chunk borders on element borders. With `undo`, what `into` held is kept
/// before.
struct Placement {
  std::byte* into = nullptr;
  const std::byte* with = nullptr;
  kernel::CombineFn combine = nullptr;
  size_t element_bytes = 1;
  Undo* undo = nullptr;
};

/// The wires of one group, used by one thread at a time (the holder of the group's execution token).
///
/// Per peer and direction, messages arrive in the order in which they were posted, and the n-th message posted to a
/// peer meets the n-th receive posted for it there. Posting never blocks and never fails; wait() moves the bytes.
/// Posted memory must stay valid and unchanged until wait() returns, whatever it returns.
class Mesh {
 public:
  virtual ~Mesh() = default;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "inproc", "shm", "tcp": what tests and benches assert.
  virtual std::string_view transport_name() const = 0;

  /// Opens operation `number`. Its number and signature travel with every message; a message of an earlier operation
  /// (one that failed here) is thrown away, one of a later operation waits.
  virtual void begin(uint64_t number, const Signature& signature) = 0;

  virtual void send(int peer, std::span<const std::byte> data) = 0;
  virtual void receive(int peer, size_t bytes, const Placement& placement) = 0;

  /// Moves what can be moved now, without waiting.
  virtual Status poke() = 0;

  /// Waits until everything posted is done. After an error nothing posted is touched any more, and the rest of the
  /// operation must not be posted: kMismatch names both signatures or sizes, kPeerLost the peer whose wire ended,
  /// kStopped a revocation, kTimeout the ranks that were waited for.
  virtual Status wait(Deadline deadline) = 0;

  /// In place of operation `number` or the rest of it, when nothing of it is posted: this member cannot take part, and
  /// the others fail with `why` (kMismatch, kUnavailable) when they come to wait for it. They have been told when this
  /// returns `why`; otherwise, kTimeout or kStopped, they cannot be.
  virtual Status refuse(uint64_t number, const Status& why) = 0;

  /// From any thread: every wait() of now and later returns kStopped. There is no way back.
  virtual void revoke() = 0;

 protected:
  Mesh() = default;
};

}  // namespace horo::transport
