#include <nlohmann/json.hpp>

#include "cli/bench/report.h"

#include "horo/base/build.h"

namespace horo::bench {

namespace {

using nlohmann::json;

json contender_json(const Report& report, const SizeResult& size, const LaneResult& lane) {
  json one{{"name", lane.lane->name},
           {"buffers", lane.lane->library ? "library" : "ordinary"},
           {"dtype", std::string(name(lane.lane->dtype))}};
  if (!lane.left_out.empty()) {
    one["left_out"] = lane.left_out;
    return one;
  }
  const Figures f = figures(size, lane);
  const double bandwidth = f.median_us > 0 ? static_cast<double>(lane.bytes) / f.median_us * 1e-3 : 0;
  one["median_us"] = f.median_us;
  one["p99_us"] = f.p99_us;
  one["minimum_us"] = f.minimum_us;
  one["back_to_back_us"] = f.back_to_back_us > 0 ? json(f.back_to_back_us) : json(nullptr);
  one["algorithm_gbps"] = bandwidth;
  one["bus_gbps"] = bandwidth * bus_factor(report.options.op, report.options.ranks);
  one["cpu_seconds_per_gib"] = f.cpu_seconds_per_gib;
  one["transport"] = f.transport;
  one["algorithm"] = f.algorithm;
  one["iterations"] = lane.iterations;
  one["round_medians_us"] = f.round_medians_us;
  return one;
}

json ratios_json(const Report& report, const SizeResult& size) {
  json ratios = json::object();
  double horo[2] = {0, 0};
  for (const LaneResult& lane : size.lanes) {
    if (lane.lane->name == "horo" && lane.left_out.empty()) {
      horo[lane.lane->library ? 1 : 0] = figures(size, lane).median_us;
    }
  }
  for (bool library : {false, true}) {
    const double base = horo[library ? 1 : 0];
    if (base <= 0) continue;
    json& to = ratios[library ? "library" : "ordinary"];
    for (const LaneResult& lane : size.lanes) {
      if (lane.lane->is_limit || lane.lane->name == "horo" || !lane.left_out.empty()) continue;
      if (lane.lane->library && !library) continue;  // "bare" has memory of its own; it comes after its ordinary lane.
      to[lane.lane->name] = figures(size, lane).median_us / base;
    }
    if (const double floor = copy_floor_us(report, size); floor > 0) to["copy_floor"] = floor / base;
    if (const double stream = stream_us(report, size); stream > 0) to["stream"] = stream / base;
  }
  return ratios;
}

json size_json(const Report& report, const SizeResult& size) {
  json contenders = json::array();
  for (const LaneResult& lane : size.lanes) {
    if (!lane.lane->is_limit) contenders.push_back(contender_json(report, size, lane));
  }
  const double floor = copy_floor_us(report, size);
  const double stream = stream_us(report, size);
  std::vector<int> dropped;
  const auto counted = size.counted();
  for (int round = 0; round < size.rounds; ++round) {
    if (std::find(counted.begin(), counted.end(), static_cast<size_t>(round)) == counted.end())
      dropped.push_back(round);
  }
  const bool any = std::find(size.disturbed.begin(), size.disturbed.end(), true) != size.disturbed.end();
  return {{"asked_bytes", size.asked_bytes},
          {"bytes", size.bytes},
          {"rounds", size.rounds},
          {"dropped_rounds", dropped},
          {"disturbed", any && dropped.empty()},
          {"taken_processors", size.taken},
          {"stolen_processors", size.stolen},
          {"contenders", contenders},
          {"copy_floor_us", floor > 0 ? json(floor) : json(nullptr)},
          {"stream_us", stream > 0 ? json(stream) : json(nullptr)},
          {"ratios", ratios_json(report, size)}};
}

}  // namespace

std::string to_json(const Report& report) {
  json sizes = json::array();
  for (const SizeResult& size : report.sizes) sizes.push_back(size_json(report, size));
  json left_out = json::array();
  for (const auto& [name, why] : report.left_out) left_out.push_back({{"name", name}, {"reason", why}});
  const json whole{{"format", 1},
                   {"horo", std::string(build_info().version)},
                   {"build", std::string(build_info().compiler) + " " + std::string(build_info().build_type)},
                   {"machine",
                    {{"model", report.machine.model},
                     {"architecture", report.machine.architecture},
                     {"usable_cores", report.machine.usable_cores},
                     {"kernel", report.machine.kernel},
                     {"caches", report.machine.caches},
                     {"memory_bytes", report.machine.memory}}},
                   {"operation", std::string(name(report.options.op))},
                   {"dtype", std::string(name(report.options.dtype))},
                   {"ranks", report.options.ranks},
                   {"hosts", report.options.hosts},
                   {"shape_bits_per_second", report.options.bits_per_second},
                   {"in_place", report.options.in_place()},
                   {"transport", report.transport},
                   {"seed", report.options.seed},
                   {"results", sizes},
                   {"left_out", left_out}};
  return whole.dump(2);
}

}  // namespace horo::bench
