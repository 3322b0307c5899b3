// The job's key for one attempt to join. The launcher hands it over on a descriptor, which can be read once: an attempt
// that fails puts the key back there, so that the next one finds it.
#pragma once

#include <memory>

#include "horo/base/config.h"
#include "horo/net/key.h"

namespace horo::rendezvous {

class KeyLoan {
 public:
  /// From HORO_KEY_FILE or HORO_KEY_FD; the public key when neither is set. The descriptor's number stays taken until
  /// the loan ends, and nothing that this process starts inherits it.
  static Result<KeyLoan> take(const Config& config);

  KeyLoan(KeyLoan&& other) noexcept;
  KeyLoan& operator=(KeyLoan&&) = delete;
  /// Puts the key back, unless it was kept.
  ~KeyLoan();

  const std::shared_ptr<const net::Key>& key() const { return key_; }
  /// The job was joined: the descriptor is closed.
  void keep();

 private:
  KeyLoan(std::shared_ptr<const net::Key> key, int fd) : key_(std::move(key)), fd_(fd) {}
  void put_back() const;

  std::shared_ptr<const net::Key> key_;
  int fd_ = -1;  ///< Whose number the key goes back to; -1: nothing is to be done.
};

}  // namespace horo::rendezvous
