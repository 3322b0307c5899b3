// Errors are values: Status says what happened, Result<T> carries a value or a Status.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "horo/base/check.h"

namespace horo {

/// Codes are grouped by what the caller can do about them. The values are part of the C ABI (api/horo.h).
enum class Code : int32_t {
  kOk = 0,
  kInvalidArgument = 1,  ///< Fix the call: a null pointer, a negative count, an unknown dtype, a bad knob.
  kMismatch = 2,         ///< The ranks disagree about an operation; fix the program. The group stays usable.
  kTimeout = 3,          ///< A deadline passed.
  kPeerLost = 4,         ///< One or more members are gone; go on with the survivors.
  kEvicted = 5,          ///< The others went on without this rank (it was frozen or cut off).
  kUnauthenticated = 6,  ///< The peer does not hold the job's key.
  kIncompatible = 7,     ///< Wire versions, feature bits or membership epochs do not fit together.
  kUnavailable = 8,      ///< A resource is short: memory, descriptors, a feature of this system.
  kStopped = 9,          ///< The operation was cancelled, or the engine was shut down.
  kCorrupt = 10,         ///< Bytes arrived damaged, are not of our protocol, or cannot be read any more.
  kForked = 11,          ///< Called in a forked child of the process that owns the engine.
  kNotFound = 12,        ///< A name, file, symbol or key does not exist.
  kInterrupted = 13,     ///< A signal arrived and the caller asked to be told.
  kInternal = 14,        ///< A broken invariant of our own; please report it.
};

/// "peer-lost", "mismatch", ...
std::string_view code_name(Code code);

/// The outcome of something that can fail. OK costs one null pointer; an error owns its message.
/// The one who decides that something failed writes the message: what, where, the values that differ, what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);

  bool ok() const { return detail_ == nullptr; }
  explicit operator bool() const { return ok(); }
  Code code() const;
  const std::string& message() const;
  /// Ranks known to be lost when this status was made (kPeerLost, kEvicted).
  const std::vector<int>& lost() const;
  /// Number of the operation in its group, if the status belongs to one.
  std::optional<uint64_t> operation() const;
  /// False when a failed in-place call may have overwritten the caller's memory.
  bool contents_intact() const;

  Status with_lost(std::vector<int> ranks) const;
  Status with_operation(uint64_t number) const;
  Status with_contents_lost() const;
  /// The same error with `prefix: ` in front of the message.
  Status prefixed(std::string_view prefix) const;

  /// "peer-lost: rank 2 on host b is gone (killed)"; "ok".
  std::string to_string() const;

 private:
  struct Detail {
    Code code = Code::kOk;
    std::string message;
    std::vector<int> lost;
    std::optional<uint64_t> operation;
    bool contents_intact = true;
  };
  template <class Change>
  Status changed(Change change) const;

  std::shared_ptr<const Detail> detail_;
};

std::ostream& operator<<(std::ostream& out, const Status& status);

/// A value, or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {
    HORO_CHECK(!status_.ok(), "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }

  T& value() & { return *checked(); }
  const T& value() const& { return *const_cast<Result*>(this)->checked(); }
  T&& value() && { return std::move(*checked()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T>& checked() {
    HORO_CHECK(value_.has_value(), "value() of a failed Result: " + status_.to_string());
    return value_;
  }
  Status status_;
  std::optional<T> value_;
};

#define HORO_CONCAT_INNER(a, b) a##b
#define HORO_CONCAT(a, b) HORO_CONCAT_INNER(a, b)

/// Returns from the enclosing function when `expression` (a Status) is an error.
#define HORO_TRY(expression)                           \
  do {                                                 \
    ::horo::Status horo_try_status = (expression);     \
    if (!horo_try_status.ok()) return horo_try_status; \
  } while (false)

/// HORO_ASSIGN(auto x, f()): declares x from a Result, or returns its error.
#define HORO_ASSIGN(declaration, expression) \
  HORO_ASSIGN_INNER(declaration, expression, HORO_CONCAT(horo_result_, __LINE__))
#define HORO_ASSIGN_INNER(declaration, expression, name) \
  auto name = (expression);                              \
  if (!name.ok()) return name.status();                  \
  declaration = std::move(name).value()

}  // namespace horo
