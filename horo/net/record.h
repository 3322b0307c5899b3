// Encrypted data streams: plain bytes travel in sealed records.
//
//   at  bytes  field
//    0      4  length   of the plain bytes, 1 to kMostRecord; authenticated
//    4      n  the bytes, encrypted
//  4+n     16  tag      of length, bytes, place in the stream and key
//
// AES-256-GCM, or ChaCha20-Poly1305 where a CPU has no instructions for AES. Each direction of each stream has its own
// key (attach.h), so nothing can be moved to another stream or sent back. The nonce is the number of the record in its
// direction, which does not travel: a record that is left out, repeated or moved does not open. After kRecordsPerKey
// records both sides go on with the next key, made from the last one, which is forgotten: what was sent before stays
// secret when the memory of a rank leaks later, and a key seals far fewer bytes than would wear it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "horo/base/status.h"
#include "horo/net/io_result.h"
#include "horo/net/key.h"
#include "horo/net/socket.h"

// OpenSSL's type, without its headers for everyone who includes this one.
struct evp_cipher_ctx_st;

namespace horo::net {

/// What a data stream is protected by. The values travel in attach requests.
enum class Protection : uint8_t { kChecksum = 0, kAesGcm = 1, kChaChaPoly = 2 };
inline constexpr uint8_t kHighestProtection = 2;
std::string_view name(Protection protection);
/// Whether AES is fast here; without, it is also hard to compute without leaking the key through the time it takes.
bool has_fast_aes();

/// The keys of one end of one stream. Without, it is plain.
struct StreamKeys {
  Protection protection = Protection::kAesGcm;
  Key sending;
  Key receiving;
};

inline constexpr size_t kMostRecord = 64 << 10;
inline constexpr size_t kRecordHead = 4;
inline constexpr size_t kRecordTag = 16;
inline constexpr size_t kRecordExtra = kRecordHead + kRecordTag;
inline constexpr uint64_t kRecordsPerKey = 1 << 20;

/// One direction of a stream: its key, and how many records it has seen.
class RecordCipher {
 public:
  enum class Role : uint8_t { kSeal, kOpen };
  static Result<RecordCipher> create(Role role, Protection protection, Key key,
                                     uint64_t records_per_key = kRecordsPerKey);

  /// Appends the next record, 1 to kMostRecord bytes in all, to `out`.
  Status seal(std::span<const std::span<const std::byte>> parts, std::vector<std::byte>& out);
  /// Opens the next record, a whole one, to `into`, which has as many bytes as it holds; kCorrupt when it is not the
  /// one that was sent. What is in `into` is then worthless, and so is everything that follows in the stream.
  Status open(std::span<const std::byte> record, std::byte* into);
  uint64_t records() const { return records_; }

 private:
  struct FreeContext {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  RecordCipher(Role role, Protection protection, Key key, uint64_t records_per_key)
      : role_(role), protection_(protection), key_(std::move(key)), records_per_key_(records_per_key) {}
  Status use_key();
  Status start_record(std::span<const std::byte> head);

  Role role_;
  Protection protection_;
  Key key_;
  uint64_t records_per_key_;
  uint64_t records_ = 0;
  std::unique_ptr<evp_cipher_ctx_st, FreeContext> context_;
};

/// Collects what arrives and gives out whole records.
class RecordReader {
 public:
  explicit RecordReader(RecordCipher cipher) : cipher_(std::move(cipher)) {}

  /// One attempt to receive. Not called while has_record(), so there is always room. A stream that ends in the middle
  /// of a record ends like any other: whoever can cut a record off could as well cut the stream.
  IoResult receive(const Socket& socket);
  /// For tests and fuzzing: as if these had been received. As many as there is room for.
  size_t take(std::span<const std::byte> bytes);

  /// Whether a whole record is here; kCorrupt for a length that is none.
  Result<bool> has_record() const;
  /// Plain bytes of that record.
  size_t record_bytes() const;
  /// Opens it to `into`, which has room for record_bytes().
  Status open(std::byte* into);

 private:
  static constexpr size_t kBuffer = 4 * (kMostRecord + kRecordExtra);

  std::span<std::byte> room();

  RecordCipher cipher_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace horo::net
