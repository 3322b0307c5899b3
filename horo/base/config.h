// What the user asked for: a snapshot of the environment, read through the tables of knobs.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/knob.h"
#include "horo/base/status.h"

namespace horo {

/// Variables and their values at one instant. Everything that depends on the environment takes one of these, so that
/// tests hand in their own; of_process() is the only place of the project that reads the real one.
class Environment {
 public:
  using Variables = std::map<std::string, std::string, std::less<>>;

  Environment() = default;
  explicit Environment(Variables variables) : variables_(std::move(variables)) {}
  static Environment of_process();

  /// Nothing when unset or empty.
  std::optional<std::string> find(std::string_view name) const;
  /// The same with some values replaced; an empty value unsets.
  Environment with(const Variables& changes) const;
  const Variables& variables() const { return variables_; }

 private:
  Variables variables_;
};

/// A variable of Horovod's that sets nothing here. Whoever sets it is told why.
struct OldVariable {
  std::string_view name;
  std::string_view why;
  /// The value that asks for what horo does anyway: nothing is said about it.
  std::string_view usual = {};
  bool matters = false;  ///< The job does not do what the value asks for: a warning, else an explanation at INFO.
};

/// The values of all knobs. Immutable and cheap to copy.
class Config {
 public:
  /// Fails with kInvalidArgument, naming every malformed value. No two rows may have the same name.
  static Result<Config> read(std::span<const KnobTable> tables, const Environment& environment,
                             std::span<const OldVariable> old = {});
  static Result<Config> read(std::initializer_list<KnobTable> tables, const Environment& environment) {
    return read(std::span(tables.begin(), tables.size()), environment);
  }

  /// The knob must be in one of the tables that were read.
  template <KnobKind kKind, class T>
  T get(const TypedKnob<kKind, T>& knob) const {
    return std::get<T>(entry(knob.row.name).value);
  }
  /// Whether the user set it (under either name).
  bool is_set(const Knob& knob) const { return entry(knob.row.name).set; }

  /// One line per thing the user should know: unknown HORO_* names, and old and new names that contradict.
  const std::vector<std::string>& warnings() const { return contents_->warnings; }
  /// One line per OldVariable that is set and does not matter, for the log at INFO.
  const std::vector<std::string>& notes() const { return contents_->notes; }
  /// HOROVOD_* variables that mean nothing to horo, for the log at DEBUG.
  const std::vector<std::string>& ignored() const { return contents_->ignored; }

 private:
  struct Entry {
    KnobValue value;
    bool set = false;
  };
  struct Contents {
    std::map<std::string, Entry, std::less<>> entries;
    std::vector<std::string> warnings;
    std::vector<std::string> notes;
    std::vector<std::string> ignored;
  };
  static Result<Entry> read_entry(const Knob& knob, const Environment& environment, Contents& contents);
  static void note_unknown(std::span<const KnobTable> tables, const Environment& environment,
                           std::span<const OldVariable> old, Contents& contents);
  explicit Config(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  const Entry& entry(std::string_view name) const;

  std::shared_ptr<const Contents> contents_;
};

}  // namespace horo
