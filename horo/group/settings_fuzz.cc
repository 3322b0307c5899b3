// What users put into HORO_* variables: "NAME=value" lines.
#include <cstdint>
#include <string>

#include "horo/base/config.h"
#include "horo/collective/selector.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/bootstrap.h"
#include "horo/rendezvous/knobs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  horo::Environment::Variables variables;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    const size_t equals = line.find('=');
    if (equals != std::string_view::npos && equals > 0) {
      variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  auto config = horo::Config::read({horo::group::kKnobs, horo::rendezvous::kKnobs}, horo::Environment(variables));
  if (!config.ok()) return 0;
  (void)horo::rendezvous::find_place(*config).ok();
  (void)horo::collective::Forced::parse(config->get(horo::group::kAlgorithm)).ok();
  return 0;
}
