#include <algorithm>

#include <nlohmann/json.hpp>

#include "cli/check/facts.h"
#include "cli/machine.h"
#include "cli/table.h"

#include "horo/base/build.h"
#include "horo/base/text.h"
#include "horo/collective/algorithm.h"

namespace horo::cli {

std::string_view name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"ok", "note", "problem"};
  return kNames[static_cast<size_t>(verdict)];
}

std::string version_text() {
  const BuildInfo& build = build_info();
  std::string line = text("horo ", build.version, " (", build.architecture, ", ", build.compiler);
  if (!build.build_type.empty()) line += text(", ", build.build_type);
  if (!build.sanitizers.empty()) line += text(", sanitizers ", build.sanitizers);
  return line + ")";
}

std::string facts_text(const Facts& facts, bool colours) {
  Table table({"", "", "here", "what to do"});
  for (size_t column : {0, 1, 2, 3}) table.flush_left(column);
  std::string section;
  for (const Fact& fact : facts) {
    if (fact.section != section && !section.empty()) table.gap();
    section = fact.section;
    table.add({std::string(name(fact.verdict)), fact.name, fact.value, fact.advice});
  }
  return text(version_text(), "\n", this_machine().to_string(), "\n\n", table.to_string(colours));
}

std::string facts_json(const Facts& facts) {
  using nlohmann::json;
  json all{{"version", build_info().version}, {"machine", this_machine().to_string()}, {"facts", json::array()}};
  for (const Fact& fact : facts) {
    all["facts"].push_back({{"section", fact.section},
                            {"name", fact.name},
                            {"value", fact.value},
                            {"verdict", name(fact.verdict)},
                            {"advice", fact.advice}});
  }
  return all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

bool has_problem(const Facts& facts) {
  return std::any_of(facts.begin(), facts.end(), [](const Fact& fact) { return fact.verdict == Verdict::kProblem; });
}

Facts all_facts(const Environment& environment) {
  Facts all;
  for (Facts& part : std::vector<Facts>{transport_facts(), software_facts(environment), machine_facts(), limit_facts(),
                                        network_facts(environment), knob_facts(environment)}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::string algorithms_text(bool colours) {
  Table table({"algorithm", "order of sums", "operations"});
  for (size_t column : {0, 1, 2}) table.flush_left(column);
  table.add({"direct", std::string(name(collective::Order::kRank)), "all, between ranks that share memory"});
  // Two hosts of two: every algorithm does there what it can do at all.
  const collective::Shape shape({0, 0, 1, 1});
  for (const collective::Algorithm& algorithm : collective::registry()) {
    std::string kinds;
    for (int kind = 0; kind <= static_cast<int>(collective::Kind::kSendRecv); ++kind) {
      collective::Operation operation;
      operation.kind = static_cast<collective::Kind>(kind);
      operation.dtype = DType::kF32;
      operation.target = 1;
      operation.count = 4;
      operation.counts = operation.receive_counts = {1, 1, 1, 1};
      if (!algorithm.refusal(operation, shape).empty()) continue;
      kinds += text(kinds.empty() ? "" : ", ", name(operation.kind));
    }
    table.add({std::string(algorithm.name), std::string(name(algorithm.order)), kinds});
  }
  return table.to_string(colours) + "\nHORO_ALGORITHM=NAME forces one where it can do the operation.\n";
}

}  // namespace horo::cli
