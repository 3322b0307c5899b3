#include "cli/bench/report.h"

#include <algorithm>
#include <optional>

#include "cli/bench/statistics.h"
#include "cli/table.h"

#include "horo/base/text.h"

namespace horo::bench {

namespace {

constexpr double kGiB = 1073741824.0;

/// The first lane of that name that was measured.
const LaneResult* lane_named(const SizeResult& size, const std::string& name, bool library) {
  for (const LaneResult& lane : size.lanes) {
    if (lane.lane->name == name && lane.lane->library == library && lane.left_out.empty()) return &lane;
  }
  return nullptr;
}

double median_of(const SizeResult& size, const std::string& name, bool library) {
  const LaneResult* lane = lane_named(size, name, library);
  return lane == nullptr ? 0 : figures(size, *lane).median_us;
}

/// "3.4x": how many times as long as `base` it took.
std::string times(double other, double base) { return base > 0 && other > 0 ? cli::number(other / base) + "x" : "-"; }

double gigabytes_per_second(uint64_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds * 1e-3 : 0;
}

/// Who had the processors in the worst turn.
std::string takers(const SizeResult& size) {
  return text("something else used up to ", cli::number(size.taken), " processors, the hypervisor took up to ",
              cli::number(size.stolen));
}

std::vector<std::string> limit_row(const std::string& label, double us, double bytes, double horo, double library) {
  return {"",
          label,
          cli::number(us),
          "",
          "",
          cli::number(bytes / us * 1e-3),
          "",
          "",
          times(us, horo),
          library > 0 ? times(us, library) : ""};
}

void add_size(const Report& report, const SizeResult& size, cli::Table& table) {
  const double horo = median_of(size, "horo", false);
  const double library = median_of(size, "horo", true);
  std::string label = size.bytes == 0 ? "-" : bytes_text(size.bytes);
  for (const LaneResult& lane : size.lanes) {
    if (lane.lane->is_limit) continue;
    if (!lane.left_out.empty()) {
      table.add({label, lane.lane->label, "left out"});
      label.clear();
      continue;
    }
    const Figures f = figures(size, lane);
    const double bandwidth = gigabytes_per_second(lane.bytes, f.median_us);
    table.add({label, lane.lane->label, cli::number(f.median_us), cli::number(f.p99_us),
               f.back_to_back_us > 0 ? cli::number(f.back_to_back_us) : "", cli::number(bandwidth),
               cli::number(bandwidth * bus_factor(report.options.op, report.options.ranks)),
               f.cpu_seconds_per_gib > 0 ? cli::number(f.cpu_seconds_per_gib) : "", times(f.median_us, horo),
               library > 0 ? times(f.median_us, library) : ""});
    label.clear();
  }
  const double floor = copy_floor_us(report, size);
  const auto bytes = static_cast<double>(size.bytes);
  if (floor > 0) table.add(limit_row("(limit: memory)", floor, bytes, horo, library));
  const double stream = stream_us(report, size);
  if (stream > 0) table.add(limit_row("(limit: raw stream)", stream, bytes, horo, library));
}

}  // namespace

Figures figures(const SizeResult& size, const LaneResult& lane) {
  Figures f;
  std::vector<double> medians, all, batches;
  double cpu = 0;
  uint64_t operations = 0;
  for (const Turn& turn : lane.turns) f.round_medians_us.push_back(median(turn.latency.microseconds));
  for (size_t round : size.counted()) {
    if (round >= lane.turns.size()) continue;
    const Turn& turn = lane.turns[round];
    medians.push_back(f.round_medians_us[round]);
    all.insert(all.end(), turn.latency.microseconds.begin(), turn.latency.microseconds.end());
    if (lane.batch > 0) batches.push_back(median(turn.batch.microseconds));
    // Small operations are too short for the processor's clock: there the batches tell.
    const bool from_batch = lane.batch > 0;
    cpu += from_batch ? turn.batch.cpu_seconds : turn.latency.cpu_seconds;
    operations += static_cast<uint64_t>(from_batch ? lane.batch * kBatches : lane.iterations);
    f.transport = turn.latency.transport;
    f.algorithm = turn.latency.algorithm;
  }
  f.median_us = median(medians);
  f.p99_us = quantile(all, 0.99);
  f.minimum_us = all.empty() ? 0 : *std::min_element(all.begin(), all.end());
  f.back_to_back_us = median(batches);
  const double gib = static_cast<double>(operations) * static_cast<double>(lane.bytes) / kGiB;
  f.cpu_seconds_per_gib = gib > 0 ? cpu / gib : 0;
  return f;
}

double floor_bytes(Op op, uint64_t bytes, int ranks) {
  const auto tensor = static_cast<double>(bytes);
  const double n = ranks;
  switch (op) {
    case Op::kAllreduce:
    case Op::kAlltoall:
      return 2 * n * tensor;
    case Op::kReduce:
    case Op::kAllgather:
    case Op::kReducescatter:
      return (n + 1) * tensor;
    case Op::kGather:
    case Op::kScatter:
    case Op::kSendRecv:
      return 2 * tensor;
    case Op::kBroadcast:
      return n * tensor;
    default:
      return 0;
  }
}

double bus_factor(Op op, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (op) {
    case Op::kAllreduce:
      return 2 * share;
    case Op::kAllgather:
    case Op::kReducescatter:
    case Op::kAlltoall:
    case Op::kGather:
    case Op::kScatter:
      return share;
    default:
      return 1;
  }
}

double copy_floor_us(const Report& report, const SizeResult& size) {
  double best = 0;
  for (bool streamed : {false, true}) {
    const double copy = median_of(size, "copy", streamed);
    if (copy > 0 && (best == 0 || copy < best)) best = copy;
  }
  // All ranks copied at once: each read and wrote the tensor in that time.
  const double copied = 2.0 * report.options.ranks * static_cast<double>(size.bytes);
  return copied > 0 ? best * floor_bytes(report.options.op, size.bytes, report.options.ranks) / copied : 0;
}

double stream_us(const Report& report, const SizeResult& size) {
  // The tensor once in each direction; what the operation must send is bus_factor times that.
  return median_of(size, "stream", false) * bus_factor(report.options.op, report.options.ranks);
}

std::string to_table(const Report& report, bool colours) {
  const bool both = report.options.buffers == Buffers::kBoth;
  cli::Table table({"bytes", "", "us", "p99 us", "back-to-back us", "GB/s", "bus GB/s", "cpu s/GiB", "/ horo",
                    both ? "/ library" : ""});
  table.flush_left(1);
  for (const SizeResult& size : report.sizes) {
    add_size(report, size, table);
    if (&size != &report.sizes.back()) table.gap();
  }
  std::string out = table.to_string(colours);
  for (const SizeResult& size : report.sizes) {
    const auto dropped = static_cast<size_t>(size.rounds) - size.counted().size();
    const bool noisy = dropped == 0 && std::count(size.disturbed.begin(), size.disturbed.end(), true) > 0;
    if (dropped > 0)
      out += text(bytes_text(size.bytes), ": ", dropped, " of ", size.rounds, " rounds dropped: ", takers(size), "\n");
    if (noisy)
      out +=
          text(bytes_text(size.bytes), ": DISTURBED in most rounds: ", takers(size), "; all were kept, trust none\n");
    for (const LaneResult& lane : size.lanes) {
      if (!lane.left_out.empty())
        out += text(bytes_text(size.bytes), ": ", lane.lane->label, ": ", lane.left_out, "\n");
    }
  }
  for (const auto& [name, why] : report.left_out) out += text("left out: ", name, ": ", why, "\n");
  return out;
}

}  // namespace horo::bench
