// The first message inside an authenticated channel, from each side: who is there and what it speaks.
//
// It begins with four bytes of magic and four of length and is understood by every version: fields are only ever
// appended, and what follows the known ones is skipped. The connecting side sends first; the accepting side judges and
// answers with its own Hello and its verdict, so that both know the same reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/net/frame.h"
#include "horo/net/identity.h"

namespace horo::net {

/// Feature bits of a Hello. The values travel on the wire.
namespace feature {
inline constexpr uint64_t kEncryptsData = 1;  ///< HORO_ENCRYPT=1; who sets it also requires it.
inline constexpr uint64_t kFastAes = 2;       ///< Both sides have it: AES-256-GCM, else ChaCha20-Poly1305.
}  // namespace feature

struct Hello {
  static constexpr size_t kPrefixBytes = 8;
  static constexpr size_t kMostBytes = 2048;

  uint16_t lowest_version = kWireVersionLowest;
  uint16_t highest_version = kWireVersionHighest;
  uint64_t features = 0;           ///< What this side can do.
  uint64_t required_features = 0;  ///< What it will not do without.
  std::string architecture;        ///< "x86_64", "aarch64": may differ.
  std::string build;               ///< Version and build id, for messages.
  std::string host;                ///< "host-name, pid 12", for messages.
  Member member = 0;
  uint64_t epoch = 0;
  /// The accepting side's verdict on the connecting side; kOk from the connecting side.
  Code verdict = Code::kOk;
  std::string reason;

  friend bool operator==(const Hello&, const Hello&) = default;
  /// "rank 3 (node7, pid 12; horo 0.1.0, x86_64)"
  std::string to_string() const;
};

/// This process: architecture, version and host are filled in.
Hello local_hello(Member member, uint64_t epoch);

/// With prefix. Texts that are too long are cut.
std::vector<std::byte> encode(const Hello& hello);
/// The length of the body, from the prefix; kCorrupt unless it is a Hello of at most kMostBytes.
Result<size_t> decode_hello_prefix(std::span<const std::byte, Hello::kPrefixBytes> prefix);
Result<Hello> decode_hello_body(std::span<const std::byte> body);

/// The wire version that both speak; kIncompatible, naming both sides, when there is none, when one lacks a feature
/// that the other requires, or when their epochs differ.
Result<uint16_t> agree(const Hello& mine, const Hello& theirs);

}  // namespace horo::net
