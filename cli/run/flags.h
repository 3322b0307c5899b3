// The words behind `horo run`, read through the table of flags.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run/flag_table.h"

#include "horo/base/config.h"
#include "horo/base/status.h"

namespace horo::cli::launch {

/// Flags under their first name, checked by their kind. A switch is "true" or "false"; others have what the user wrote.
struct FlagValues {
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::vector<std::string> command;  ///< Everything from the first word that is no flag.
  std::string help;                  ///< Not empty: the user asked for it.

  bool has(std::string_view name) const { return values.find(name) != values.end(); }
  /// The last one given.
  std::optional<std::string> find(std::string_view name) const;
  bool is_on(std::string_view name) const { return find(name) == "true"; }
};

/// kInvalidArgument with what is wrong, and the nearest flag for an unknown one.
Result<FlagValues> parse_flags(const std::vector<std::string>& words);

/// Whether `value` is what the row takes; kInvalidArgument names both. `origin` is the flag, or a place in a file.
Status check_value(const FlagRow& row, std::string_view value, std::string_view origin);

/// What the flags say to the ranks: HORO_* where `knobs` (text that lists all variables of this build) knows them,
/// HOROVOD_* otherwise. The other of the two names is unset, so that an older value does not contradict.
Environment::Variables variables_of(const FlagValues& flags, std::string_view knobs);

/// One line for each flag that was given and means nothing here.
std::vector<std::string> notes_of(const FlagValues& flags);

}  // namespace horo::cli::launch
