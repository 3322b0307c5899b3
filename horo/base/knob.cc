#include "horo/base/knob.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>

#include "horo/base/text.h"

namespace horo {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024;
constexpr std::array<Unit, 10> kByteUnits = {{{"", 1},
                                              {"B", 1},
                                              {"K", kKi},
                                              {"KiB", kKi},
                                              {"M", kKi* kKi},
                                              {"MiB", kKi* kKi},
                                              {"G", kKi* kKi* kKi},
                                              {"GiB", kKi* kKi* kKi},
                                              {"T", kKi* kKi* kKi* kKi},
                                              {"TiB", kKi* kKi* kKi* kKi}}};
constexpr std::array<Unit, 6> kTimeUnits = {{{"", 1}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}}};

// Far below the range of Duration, so that adding it to any point in time cannot overflow.
constexpr double kLongestSeconds = 3.2e9;
// The largest integer below which every integer is exact in a double.
constexpr double kExactInDouble = 9007199254740992.0;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return out;
}

std::string_view trimmed(std::string_view text) {
  size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A decimal number and one of `units`, case ignored: "1.5GiB". Negative, infinite and "1e9" are not accepted.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  size_t digits = text.find_first_not_of("0123456789.");
  std::string_view number = text.substr(0, digits);
  std::string_view suffix = digits == std::string_view::npos ? "" : trimmed(text.substr(digits));
  double value = 0;
  auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value, std::chars_format::fixed);
  if (number.empty() || error != std::errc{} || end != number.data() + number.size()) return std::nullopt;
  for (const Unit& unit : units) {
    if (lower(suffix) == lower(unit.name)) return value * unit.factor;
  }
  return std::nullopt;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  // Bare integers beyond 2^53 would lose bits on the way through double.
  if (auto plain = parse_integer(text)) return *plain < 0 ? std::nullopt : std::optional<uint64_t>(*plain);
  auto quantity = parse_quantity(text, kByteUnits);
  if (!quantity || *quantity >= kExactInDouble || *quantity != std::floor(*quantity)) return std::nullopt;
  return static_cast<uint64_t>(*quantity);
}

std::optional<Duration> parse_seconds(std::string_view text) {
  auto quantity = parse_quantity(text, kTimeUnits);
  if (!quantity || *quantity > kLongestSeconds) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*quantity));
}

std::optional<bool> parse_bool(std::string_view text) {
  constexpr std::array<std::string_view, 8> kWords = {"0", "false", "no", "off", "1", "true", "yes", "on"};
  auto found = std::find(kWords.begin(), kWords.end(), lower(text));
  if (found == kWords.end()) return std::nullopt;
  return found - kWords.begin() >= 4;
}

std::optional<std::string> parse_choice(std::string_view choices, std::string_view text) {
  std::string word = lower(text);
  while (!choices.empty()) {
    size_t bar = std::min(choices.find('|'), choices.size());
    if (lower(choices.substr(0, bar)) == word) return std::string(choices.substr(0, bar));
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return std::nullopt;
}

bool in_range(const KnobRow& row, int64_t value) { return value >= row.minimum && value <= row.maximum; }

template <class T>
std::optional<KnobValue> as_value(std::optional<T> parsed) {
  if (!parsed) return std::nullopt;
  return KnobValue(*std::move(parsed));
}

std::optional<KnobValue> parse_value(const Knob& knob, std::string_view value) {
  switch (knob.kind) {
    case KnobKind::kInteger: {
      auto parsed = parse_integer(value);
      return parsed && in_range(knob.row, *parsed) ? as_value(parsed) : std::nullopt;
    }
    case KnobKind::kBytes: {
      auto parsed = parse_bytes(value);
      return parsed && in_range(knob.row, static_cast<int64_t>(*parsed)) ? as_value(parsed) : std::nullopt;
    }
    case KnobKind::kSeconds:
      return as_value(parse_seconds(value));
    case KnobKind::kBool:
      return as_value(parse_bool(value));
    case KnobKind::kText:
      return KnobValue(std::string(value));
    case KnobKind::kChoice:
      return as_value(parse_choice(knob.row.choices, value));
  }
  return std::nullopt;
}

std::string range_text(const KnobRow& row) {
  bool below = row.minimum != std::numeric_limits<int64_t>::min();
  bool above = row.maximum != std::numeric_limits<int64_t>::max();
  if (below && above) return text(" from ", row.minimum, " to ", row.maximum);
  if (below) return text(" of at least ", row.minimum);
  return above ? text(" of at most ", row.maximum) : "";
}

std::string accepted_text(const Knob& knob) {
  switch (knob.kind) {
    case KnobKind::kInteger:
      return "an integer" + range_text(knob.row);
    case KnobKind::kBytes:
      return "a number of bytes" + range_text(knob.row) + ", for example 4096, 64KiB or 1.5GiB";
    case KnobKind::kSeconds:
      return "a time, for example 30, 0.5, 250ms or 5min";
    case KnobKind::kBool:
      return "1, true, yes, on or 0, false, no, off";
    case KnobKind::kText:
      return "any text";
    case KnobKind::kChoice:
      break;
  }
  std::string words(knob.row.choices);
  for (size_t bar = words.find('|'); bar != std::string::npos; bar = words.find('|', bar)) words.replace(bar, 1, ", ");
  return "one of " + words;
}

}  // namespace

Result<KnobValue> parse_knob(const Knob& knob, std::string_view variable, std::string_view value) {
  if (auto parsed = parse_value(knob, trimmed(value))) return *std::move(parsed);
  std::string shown = knob.row.secret ? "a secret" : text("'", value, "'");
  return Status(Code::kInvalidArgument, text(variable, " holds ", shown, ", accepted is ", accepted_text(knob)));
}

std::string knobs_markdown(std::span<const KnobTable> tables) {
  std::ostringstream out;
  out << "| knob | default | accepted | meaning | Horovod's name |\n|---|---|---|---|---|\n";
  for (KnobTable table : tables) {
    for (const Knob* knob : table) {
      const KnobRow& row = knob->row;
      out << "| `" << row.name << "` | " << (row.fallback.empty() ? "" : text("`", row.fallback, "`")) << " | "
          << accepted_text(*knob) << " | " << row.help << " | "
          << (row.legacy.empty() ? "" : text("`", row.legacy, "`")) << " |\n";
    }
  }
  return std::move(out).str();
}

std::string knobs_help(std::span<const KnobTable> tables) {
  std::ostringstream out;
  for (KnobTable table : tables) {
    for (const Knob* knob : table) {
      const KnobRow& row = knob->row;
      out << row.name;
      if (!row.fallback.empty()) out << "=" << row.fallback;
      out << "\n    " << row.help << "\n    Accepted: " << accepted_text(*knob) << ".";
      if (!row.legacy.empty()) out << " Also read as " << row.legacy << ".";
      out << "\n";
    }
  }
  return std::move(out).str();
}

}  // namespace horo
