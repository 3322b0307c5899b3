// The job's key, and the keys and codes made from it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "horo/base/status.h"

namespace horo::net {

/// HMAC-SHA-256.
using Mac = std::array<std::byte, 32>;

/// 32 secret bytes. They lie on a page of their own that is left out of core dumps, is empty in forked children, and is
/// overwritten when the key goes. There is no way to print one. Copies are made on purpose only.
class Key {
 public:
  static constexpr size_t kBytes = 32;

  static Result<Key> random();
  /// The key of jobs without one: public, so it protects nothing. Listeners take it on loopback only.
  static Result<Key> none();
  /// Exactly kBytes bytes that are not all zero (the public key).
  static Result<Key> from_bytes(std::span<const std::byte> bytes);
  /// A regular file of kBytes bytes that belongs to this user and is readable by nobody else
  /// (`head -c 32 /dev/urandom > key; chmod 600 key`).
  static Result<Key> from_file(const std::string& path);
  /// Reads kBytes bytes and then the end from a pipe or file, and closes `fd` in every case.
  static Result<Key> from_fd(int fd);
  /// Writes a new file that only this user can read; kUnavailable when it exists.
  Status save(const std::string& path) const;

  Key(Key&&) noexcept = default;
  Key& operator=(Key&&) noexcept = default;
  Result<Key> copy() const;
  bool is_none() const;

  /// Another key, by HKDF (RFC 5869, SHA-256), bound to `label` and `context`; nothing about this one can be learnt
  /// from it.
  Result<Key> derive(std::string_view label, std::span<const std::byte> context) const;
  /// Authenticates the parts, one after the other; their borders are the caller's concern.
  Mac mac(std::initializer_list<std::span<const std::byte>> parts) const;

  std::span<const std::byte, kBytes> secret() const;

 private:
  struct Unmap {
    void operator()(std::byte* page) const;
  };
  using Page = std::unique_ptr<std::byte[], Unmap>;

  explicit Key(Page page) : page_(std::move(page)) {}
  static Result<Key> blank();

  Page page_;
};

/// In a time that does not depend on where they differ.
bool equal(const Mac& a, const Mac& b);

/// From the system's generator, for nonces and identifiers; ends the process if there is none.
void fill_random(std::span<std::byte> bytes);

}  // namespace horo::net
