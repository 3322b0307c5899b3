// Knobs: what a user can set through the environment. Each module declares its rows in a table beside its code.
//
//   inline constexpr BytesKnob kStaging{{.name = "HORO_STAGING", .fallback = "256MiB", .help = "..."}};
//   inline constexpr const Knob* kKnobs[] = {&kStaging};
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "horo/base/deadline.h"
#include "horo/base/status.h"

namespace horo {

enum class KnobKind : uint8_t {
  kInteger,  ///< "12", "-1"
  kBytes,    ///< "4096", "64KiB", "64K", "1.5GiB": K, M, G, T are powers of 1024
  kSeconds,  ///< "2", "0.5", "250ms", "2s", "5min", "1h"
  kBool,     ///< "1", "true", "yes", "on" and their opposites, in any case
  kText,     ///< Anything
  kChoice,   ///< One word of `choices`
};

/// One row of a table. An empty value in the environment counts as unset.
struct KnobRow {
  std::string_view name;           ///< "HORO_STAGING"
  std::string_view legacy = {};    ///< The HOROVOD_* name that is honoured when `name` is unset, or empty.
  std::string_view fallback = {};  ///< The default, written as a user would write it.
  std::string_view help = {};      ///< One sentence.
  std::string_view choices = {};   ///< "auto|shm|tcp", for kChoice.
  int64_t minimum = std::numeric_limits<int64_t>::min();  ///< kInteger and kBytes.
  int64_t maximum = std::numeric_limits<int64_t>::max();
  std::string_view legacy_unit = {};  ///< Put behind a legacy value that is a bare number: "ms".
  bool secret = false;                ///< The value never appears in a message.
  std::string_view test = {};         ///< The test that sees its effect: "Suite.Name". A test walks the tables.
};

struct Knob {
  KnobRow row;
  KnobKind kind;

 protected:
  constexpr Knob(KnobRow r, KnobKind k) : row(r), kind(k) {}
};

/// A knob whose value has the C++ type T. Times are Durations, so that they fit into Deadline::after().
template <KnobKind kKind, class T>
struct TypedKnob : Knob {
  using Value = T;
  constexpr TypedKnob(KnobRow r) : Knob(r, kKind) {}
};

using IntegerKnob = TypedKnob<KnobKind::kInteger, int64_t>;
using BytesKnob = TypedKnob<KnobKind::kBytes, uint64_t>;
using SecondsKnob = TypedKnob<KnobKind::kSeconds, Duration>;
using BoolKnob = TypedKnob<KnobKind::kBool, bool>;
using TextKnob = TypedKnob<KnobKind::kText, std::string>;
using ChoiceKnob = TypedKnob<KnobKind::kChoice, std::string>;

using KnobTable = std::span<const Knob* const>;
using KnobValue = std::variant<int64_t, uint64_t, Duration, bool, std::string>;

/// Reads `value` as `knob` wants it. The error says which variable, what it holds and what is accepted.
Result<KnobValue> parse_knob(const Knob& knob, std::string_view variable, std::string_view value);

/// The rows as a Markdown table (docs/knobs.md), and as text for a terminal.
std::string knobs_markdown(std::span<const KnobTable> tables);
std::string knobs_help(std::span<const KnobTable> tables);

}  // namespace horo
