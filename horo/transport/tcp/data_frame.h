// What travels on a data stream: frames of net/frame.h, each of which says by itself what it belongs to.
//
//   data     type 1: header, prefix (24 bytes), up to `chunk` bytes of one message
//   refusal  type 2: header, code (4 bytes), text: "operation k failed here, fail it too"
//
// The prefix of a data frame, little-endian:
//
//   at  bytes  field
//    0      1  kind       }
//    1      1  dtype      }
//    2      1  op         } transport::Signature of the operation
//    3      1  table      }
//    4      4  root       }
//    8      8  count      }
//   16      8  total      bytes of the whole message
//
// Header fields: `operation` is the number given to begin(), `sequence` counts the messages to this peer within the
// operation from 0, `offset` is where the data lie in the message, `tag` is the CRC-32C of the prefix (it is believed
// before the rest has arrived), `payload_crc` that of prefix and data. Flag 1: payload_crc was not computed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "horo/base/status.h"
#include "horo/net/frame.h"
#include "horo/transport/signature.h"

namespace horo::transport::tcp {

/// The values travel on the wire.
enum class FrameType : uint8_t { kData = 1, kRefusal = 2 };
inline constexpr uint8_t kUnchecked = 1;

inline constexpr size_t kPrefixBytes = 24;
inline constexpr size_t kHeadBytes = net::FrameHeader::kBytes + kPrefixBytes;
/// Data of one frame, at most, whatever the members agree on.
inline constexpr size_t kMostChunk = 8 << 20;
inline constexpr size_t kMostRefusal = 2048;

struct Prefix {
  Signature signature;
  uint64_t total = 0;
  friend bool operator==(const Prefix&, const Prefix&) = default;
};
using PrefixBytes = std::array<std::byte, kPrefixBytes>;

PrefixBytes encode(const Prefix& prefix);
/// kCorrupt unless the bytes have the header's `tag`.
Result<Prefix> decode_prefix(std::span<const std::byte, kPrefixBytes> bytes, const net::FrameHeader& header);

/// Code and text of `why`, cut to kMostRefusal bytes.
std::string encode_refusal(const Status& why);
/// The status that was refused with, never OK; a code that is no refusal's becomes kCorrupt.
Status decode_refusal(std::span<const std::byte> payload);

/// How messages are cut into frames and dealt to the streams of a peer: frame i, which holds the bytes from i * chunk
/// on, travels on stream i modulo `streams`. Both sides know it, so each stream says in advance what comes next on it.
struct Spread {
  uint64_t chunk = 0;
  size_t streams = 1;
  /// Even an empty message is one frame.
  uint64_t frames(uint64_t bytes) const { return bytes == 0 ? 1 : (bytes - 1) / chunk + 1; }
};

/// How far one stream is: its next frame, if that message exists.
struct Cursor {
  size_t message = 0;
  uint64_t frame = 0;

  /// Over the messages that have no (further) frame on this stream.
  template <class Messages>
  void skip_done(const Messages& messages, const Spread& spread, size_t stream) {
    while (message < messages.size() && frame >= spread.frames(messages[message].bytes())) {
      ++message;
      frame = stream;
    }
  }
};

}  // namespace horo::transport::tcp
