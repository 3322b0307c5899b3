// Messages over connected streams (TCP or Unix), for members on different hosts.
//
// Every frame carries epoch, group, source, operation, signature and message size (data_frame.h), so each can be judged
// by itself when it arrives. Per peer and operation messages are numbered from 0; a message larger than `chunk` is cut
// into frames that are dealt to the peer's streams in turn (Spread), and each stream knows exactly which frame is due.
//
// What happens to the bytes of an operation that failed here:
//   - Sending. A frame of which some bytes are in the socket must be completed, or the peer would take the next frame's
//     header for data. The caller's memory is gone once wait() has returned, so the rest of that frame (one chunk per
//     stream at most) is copied before it returns, and goes out ahead of everything else from then on. It is the true
//     rest: no frame is ever void, and a checksum that differs always means damage. Frames not begun are dropped.
//   - Receiving. The rest of a frame that is being placed is thrown away as it arrives; the next begin() makes every
//     further frame of the old operation stale, and stale frames are skipped by their length.
//   - The others. A mismatch or damage found here is told to all peers by a refusal behind what was begun, so that
//     operation k fails everywhere, and nobody waits for a rank that gave up.
// A frame of a later operation, or of a message that is not posted yet, stays where it is and its stream is not read
// beyond a bounded buffer: TCP's flow control holds the sender back.
//
// On encrypted streams (net/record.h) all of that travels in sealed records. A record that does not open breaks the
// stream for good: what follows it cannot be believed either.
//
// After a damaged header, or a frame of another epoch, group or rank, the stream is out of step for good: the operation
// fails with kCorrupt or kIncompatible, and so does every later one that needs this peer. A damaged payload fails its
// operation only. An ended stream is kPeerLost (`lost` has the peer), after everything that came before was read.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "horo/net/poller.h"
#include "horo/net/socket.h"
#include "horo/net/wake.h"
#include "horo/transport/mesh.h"
#include "horo/transport/space.h"
#include "horo/transport/tcp/link.h"

namespace horo::transport::tcp {

struct MeshOptions {
  /// Bytes of a message in one frame: a multiple of 64, at most kMostChunk. Equal on all members.
  size_t chunk = 256 << 10;
  /// Of the payload. Off, what this member sends goes unchecked, and it checks nothing. Headers always have theirs.
  bool checksum = true;
  WaitPolicy policy;
  /// May be null. Lives as long as the mesh is used.
  Watcher* watcher = nullptr;
  /// With kReturn a signal handler ends a sleeping wait() with kInterrupted.
  net::OnSignal on_signal = net::OnSignal::kGoOn;
};

/// Who is at this end.
struct Seat {
  int rank = 0;
  int size = 1;
  uint64_t epoch = 0;
  uint32_t group = 0;
};

/// All but revoke() is called by one thread at a time.
class Mesh final : public transport::Mesh {
 public:
  /// `streams[peer]` are connected and authenticated and belong to this mesh alone, in the same order and number on
  /// both sides; streams[rank] is empty. kInvalidArgument otherwise, kUnavailable when descriptors are short.
  static Result<std::unique_ptr<Mesh>> create(const Seat& seat, std::vector<std::vector<Wire>> streams,
                                              const MeshOptions& options = {});

  int rank() const override { return seat_.rank; }
  int size() const override { return seat_.size; }
  std::string_view transport_name() const override { return "tcp"; }
  void begin(uint64_t number, const Signature& signature) override;
  void send(int peer, std::span<const std::byte> data) override;
  void receive(int peer, size_t bytes, const Placement& placement) override;
  Status poke() override;
  Status wait(Deadline deadline) override;
  Status refuse(uint64_t number, const Status& why) override;
  void revoke() override;

 private:
  Mesh(const Seat& seat, const MeshOptions& options, net::Wake wake);

  Link& link(int peer);
  bool idle() const;
  Status progress(bool& moved);
  Status failed(Status status);
  bool flush(Deadline deadline);
  /// Sleeps until something can move, `deadline`, or it is time to probe a peer.
  Status sleep(Time now, Deadline deadline);
  Deadline probe(Time now);
  std::string waited_for() const;

  const Seat seat_;
  const MeshOptions options_;
  Common common_;
  std::vector<std::unique_ptr<Link>> links_;  ///< By peer; null for this rank.
  std::vector<bool> reported_;                ///< Peers that the watcher knows to be dead.
  net::Wake wake_;
  std::atomic<bool> revoked_{false};
  std::vector<net::PollItem> items_;
  size_t first_item_ = 0;
};

}  // namespace horo::transport::tcp
