// Ranks as threads of one process: a message is copied straight out of the sender's memory by the receiver.
//
// For tests, simulation and programs that run several ranks in one process. A send is done when the receiver has taken
// it (rendezvous, nothing is buffered), so that a plan which passes here relies on no buffering anywhere.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "horo/transport/mesh.h"

namespace horo::transport {

class InprocMesh;

/// The meshes of one group. Outlives its meshes' users; each mesh belongs to one thread at a time.
class InprocFabric {
 public:
  explicit InprocFabric(int size);
  ~InprocFabric();
  InprocFabric(const InprocFabric&) = delete;
  InprocFabric& operator=(const InprocFabric&) = delete;

  int size() const { return size_; }
  Mesh& mesh(int rank);

  /// Fault: every wire of `rank` ends, as if its process had died. Untaken messages are gone. From any thread.
  void drop(int rank);
  /// Fault: the wire between two ranks ends, in both directions. From any thread.
  void cut(int rank, int peer);

 private:
  friend class InprocMesh;
  enum class State : uint8_t { kPosted, kTaken, kDone, kRefused };
  struct Message {
    uint64_t number = 0;
    Signature signature;
    std::span<const std::byte> data;
    State state = State::kPosted;
    Status refusal;
  };
  struct Wire {
    std::deque<Message*> messages;  ///< Owned by the sender, which withdraws them before it forgets them.
    bool ended = false;
    std::map<uint64_t, Status> refused;  ///< Operations that the sender cannot take part in, and why.
  };
  struct Bell {
    std::condition_variable rung;
    uint64_t rings = 0;
  };

  Wire& wire(int from, int to) {
    return wires_[static_cast<size_t>(from) * static_cast<size_t>(size_) + static_cast<size_t>(to)];
  }
  void ring(int rank);  ///< Holding mutex_.
  void end_wires(int rank, int peer);

  const int size_;
  std::mutex mutex_;  ///< Guards wires, bells and the states of messages; never held while bytes are copied.
  std::vector<Wire> wires_;
  std::deque<Bell> bells_;
  std::vector<std::unique_ptr<InprocMesh>> meshes_;  ///< Last: they withdraw their messages when they go.
};

}  // namespace horo::transport
