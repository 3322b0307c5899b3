// Every flag of `horo run`, as rows of one table: what it is called, what it sets, where a configuration file has it,
// and which test proves it. The command line, the configuration file, the documentation and a test walk this table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace horo::cli::launch {

enum class FlagKind : uint8_t {
  kSwitch,     ///< Takes no value.
  kNegatable,  ///< --x and --no-x.
  kText,
  kTexts,     ///< May be given several times.
  kCount,     ///< A whole number, 0 or more.
  kPositive,  ///< A whole number, 1 or more.
  kDecimal,   ///< 0 or more.
  kFraction,  ///< Between 0 and 1.
  kLevel,     ///< TRACE to FATAL.
  kPair,      ///< Two numbers.
};

/// How a value is written into the variable.
enum class ValueForm : uint8_t {
  kPlain,         ///< As it is.
  kMebibytes,     ///< A number of MiB, as bytes.
  kMilliseconds,  ///< With "ms" behind it, for the variable of horo; Horovod's has a bare number.
  kSwitch,        ///< "1", and "0" when negated.
  kInverted,      ///< "0", and "1" when negated.
};

struct FlagRow {
  std::string_view name;          ///< "--fusion-threshold-mb"
  std::string_view aliases = {};  ///< "-np,--np"
  FlagKind kind = FlagKind::kText;
  std::string_view variable = {};  ///< What ranks find it in: "HORO_FUSION_THRESHOLD".
  std::string_view legacy = {};    ///< Horovod's name for it, where that is not HOROVOD_ and the rest of `variable`.
  ValueForm form = ValueForm::kPlain;
  std::string_view setting = {};  ///< In a configuration file: "params.fusion_threshold_mb".
  std::string_view help = {};
  std::string_view note = {};  ///< Said when the flag is given and means nothing here.
  std::string_view test = {};  ///< The test that proves it.
};

std::span<const FlagRow> flag_table();

/// The row of a flag by any of its names ("--np", "-np", "--no-autotune"); null when there is none.
const FlagRow* find_flag(std::string_view word);

/// Horovod's name for the variable of a row.
std::string legacy_name(const FlagRow& row);

}  // namespace horo::cli::launch
