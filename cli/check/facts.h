// What this installation and this machine offer to horo, and what to do where that is not enough.
#pragma once

#include <string>
#include <vector>

#include "horo/base/config.h"

namespace horo::cli {

enum class Verdict : uint8_t {
  kOk,
  kNote,     ///< Works, but not as it could.
  kProblem,  ///< Jobs will fail, or not start.
};

/// "ok", "note", "problem"
std::string_view name(Verdict verdict);

struct Fact {
  std::string section;
  std::string name;
  std::string value;
  Verdict verdict = Verdict::kOk;
  std::string advice = {};  ///< What to do, or what it means; empty when all is well.
};

using Facts = std::vector<Fact>;

/// Transports, plugins, devices; frameworks; cores, memory, limits; network, ssh; knobs that say how long things take.
Facts all_facts(const Environment& environment);

// Parts of it:
Facts transport_facts();
Facts software_facts(const Environment& environment);
Facts machine_facts();
Facts limit_facts();
Facts network_facts(const Environment& environment);
Facts knob_facts(const Environment& environment);

/// For a screen, and for programs.
std::string facts_text(const Facts& facts, bool colours);
std::string facts_json(const Facts& facts);
bool has_problem(const Facts& facts);

/// "horo 1.2.3 (x86_64, gcc 12)"
std::string version_text();

/// The collective algorithms of this build, as a table.
std::string algorithms_text(bool colours);

}  // namespace horo::cli
