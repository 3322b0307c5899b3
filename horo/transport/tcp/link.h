// The wires to one peer: its streams, and the messages that are posted for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/net/poller.h"
#include "horo/net/record.h"
#include "horo/net/socket.h"
#include "horo/transport/mesh.h"
#include "horo/transport/tcp/data_frame.h"
#include "horo/transport/tcp/inbound.h"
#include "horo/transport/tcp/outbound.h"

namespace horo::transport::tcp {

/// A connected and authenticated stream, with the keys of its records if it is encrypted.
struct Wire {
  Wire(net::Socket connected, std::optional<net::StreamKeys> chosen = {})  // NOLINT(google-explicit-constructor)
      : socket(std::move(connected)), keys(std::move(chosen)) {}
  net::Socket socket;
  std::optional<net::StreamKeys> keys;
};

/// What all links of a mesh have in common.
struct Common {
  int rank = 0;
  uint64_t epoch = 0;
  uint32_t group = 0;
  uint64_t chunk = 0;
  bool checksum = true;
  uint64_t number = 0;  ///< The operation that is open.
  Signature signature;
  Bounce bounce;
  bool refused_by_peer = false;  ///< The open operation failed because a peer said so: that peer tells the others.
  bool failed = false;           ///< The open operation failed here: nobody wants what still comes of it.
};

class Link {
 public:
  static Result<std::unique_ptr<Link>> create(Common& common, int peer, std::vector<Wire> wires);

  void begin();
  void send(std::span<const std::byte> data);
  void receive(size_t bytes, const Placement& placement);

  bool sending() const { return !sends_.empty(); }
  bool receiving() const { return !receives_.empty(); }
  bool idle() const { return !sending() && !receiving(); }

  /// Moves what can be moved now; sets `moved` when something was.
  Status progress(bool& moved);
  /// Looks at what came from a peer that nothing is posted for: only a refusal of this operation matters.
  Status listen();

  /// Forgets what is posted (Outbound::keep_begun, Inbound::forget_destination).
  void abandon();
  /// Tells the peer that this operation failed here.
  void refuse(const Status& why);
  /// Sends what abandon() and refuse() left, as far as possible now, and throws away what came of the operation, so
  /// that the peer is not kept from reading. True when nothing is left to send, or it cannot be sent.
  bool flush(bool& moved);

  /// Streams to watch until something can move.
  void watch(std::vector<net::PollItem>& items) const;

  /// For probing: when the peer was last seen moving, as far as the waiter looked.
  bool moved_since_look = true;
  Time quiet_since{};
  Time probe_at{};

 private:
  Link(Common& common, int peer, size_t streams);

  struct Send {
    std::span<const std::byte> data;
    uint64_t bytes() const { return data.size(); }
  };
  struct Receive {
    size_t size = 0;
    Placement placement;
    uint64_t bytes() const { return size; }
  };
  struct Stream {
    net::Socket socket;
    bool encrypted = false;  ///< The tags of its records take the place of checksums.
    Outbound out;
    Inbound in;
    Cursor send;
    Cursor receive;
    bool header_read = false;  ///< `header` is that of the frame at the front.
    net::FrameHeader header;
    bool parked = false;  ///< The frame at the front waits for a receive or an operation to come.
    bool ended = false;
  };
  enum class Verdict : uint8_t { kPark, kPlace, kSkip, kNeedsMore };

  Status send_some(bool& moved);
  void fill_batch(Stream& stream);
  bool has_frames(const Stream& stream) const { return stream.send.message < sends_.size(); }
  Status receive_some(Stream& stream, bool& moved);
  /// Handles what is buffered, until more bytes are needed, or the stream parks.
  Status digest(Stream& stream);
  /// False when more bytes are needed first, or the stream parks.
  Result<bool> open_frame(Stream& stream);
  Result<Verdict> judge(Stream& stream);
  Result<Verdict> judge_data(Stream& stream);
  Result<Verdict> take_refusal(Stream& stream);
  Status close_frame(Stream& stream);
  bool wants_bytes(const Stream& stream) const;
  bool needs(const Stream& stream) const { return stream.receive.message < receives_.size(); }
  void settle();

  net::FrameHeader header(FrameType type) const;
  Status mismatch(const std::string& differ) const;
  Status broken(Code code, const std::string& why);
  Status peer_lost(const std::string& why);

  Common& common_;
  const int peer_;
  Spread spread_;
  std::vector<Stream> streams_;
  // Posted since the last time that all were done; their sequence numbers start at sent_before_, received_before_.
  std::vector<Send> sends_;
  std::vector<Receive> receives_;
  uint64_t sent_before_ = 0;
  uint64_t received_before_ = 0;
  Status failure_;           // Of the wires: nothing more can come.
  bool peer_knows_ = false;  ///< It has told us itself that this operation is in vain, and waits for no word of ours.
};

}  // namespace horo::transport::tcp
