#include "cli/timeline/merge.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/timeline/align.h"

#include "horo/base/text.h"

namespace horo::cli::timeline {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kFirstName = "horo_timeline";

/// Operations that nobody leaves before all have entered.
bool is_meeting(const std::string& operation) {
  static const std::set<std::string> kAll = {"allreduce", "allgather", "alltoall", "reducescatter", "barrier"};
  return kAll.contains(operation);
}

/// Calls `take` with every record of a file; returns how many lines were none. A file may end in the middle of one.
Result<size_t> read_records(const std::string& path, const std::function<Status(Json&&)>& take) {
  std::ifstream in(path);
  if (!in) return Status(Code::kNotFound, text("cannot read '", path, "'"));
  size_t skipped = 0;
  for (std::string line; std::getline(in, line);) {
    const size_t begin = line.find_first_not_of(" \t\r[]");
    if (begin == std::string::npos) continue;
    const size_t end = line.find_last_not_of(" \t\r,]");
    Json record = Json::parse(line.begin() + static_cast<ptrdiff_t>(begin),
                              line.begin() + static_cast<ptrdiff_t>(std::max(begin, end + 1)), nullptr, false);
    if (!record.is_object()) {
      ++skipped;
      continue;
    }
    HORO_TRY(take(std::move(record)));
  }
  return skipped;
}

void add_meeting(const Json& record, Track& track) {
  if (record.value("ph", "") != "X" || !record.contains("args")) return;
  const Json& arguments = record["args"];
  if (!arguments.contains("batch") || !is_meeting(arguments.value("operation", ""))) return;
  const double begin = record.value("ts", 0.0);
  track.meetings[{arguments.value("process_set", 0), arguments.value("batch", 0), arguments.value("part", 0)}] = {
      begin, begin + record.value("dur", 0.0)};
}

// Values of the wrong type make the library throw: files are anybody's.
Result<Track> read_track(const std::string& path) {
  Track track;
  bool known = false;
  const auto take = [&](Json&& record) -> Status {
    try {
      if (record.value("name", "") == kFirstName && !known) {
        const Json& facts = record.at("args");
        track.rank = facts.at("rank").get<int>();
        track.clock = facts.at("clock").get<std::string>();
        track.start_us = static_cast<double>(facts.at("start_ns").get<int64_t>()) / 1e3;
        track.wall_us = facts.at("wall_us").get<double>();
        known = true;
      }
      add_meeting(record, track);
    } catch (const Json::exception& error) {
      return {Code::kCorrupt, text("'", path, "' is damaged: ", error.what())};
    }
    return known ? Status() : Status(Code::kInvalidArgument, text("'", path, "' is no timeline of horo"));
  };
  HORO_TRY(read_records(path, take).status());
  if (!known) return Status(Code::kInvalidArgument, text("'", path, "' is no timeline of horo"));
  return track;
}

std::string sentence(const Track& track, const Track& first, const Aligned& aligned) {
  std::ostringstream out;
  out << "rank " << track.rank << ": ";
  switch (aligned.by) {
    case Aligned::By::kSameClock:
      out << (&track == &first ? "the reference" : "reads the clock of the reference");
      break;
    case Aligned::By::kMeetings:
      out << "aligned by " << aligned.meetings << " operations, within " << std::fixed << std::setprecision(1)
          << aligned.error_us << " us";
      break;
    case Aligned::By::kWallClock:
      out << "no operation in common with the reference; aligned by the time of day, which may be seconds off";
      break;
  }
  return out.str();
}

struct Input {
  std::string path;
  Track track;
};

Result<std::vector<Input>> read_inputs(const std::vector<std::string>& files) {
  std::vector<Input> inputs;
  for (const std::string& path : files) {
    HORO_ASSIGN(Track track, read_track(path));
    for (const Input& other : inputs) {
      if (other.track.rank != track.rank) continue;
      return Status(Code::kInvalidArgument,
                    text("'", other.path, "' and '", path, "' are both of rank ", track.rank, "; give one of them"));
    }
    inputs.push_back({path, std::move(track)});
  }
  std::sort(inputs.begin(), inputs.end(), [](const Input& a, const Input& b) { return a.track.rank < b.track.rank; });
  return inputs;
}

Status write_shifted(const Input& input, const Shift& shift, double zero, std::ofstream& out, MergeSummary& summary) {
  const auto take = [&](Json&& record) -> Status {
    record["pid"] = input.track.rank;
    if (auto time = record.find("ts"); time != record.end() && time->is_number()) {
      const double own = time->get<double>();
      *time = std::round((own + shift.at(own) - zero) * 1e3) / 1e3;
    }
    out << (summary.records++ == 0 ? "[\n" : ",\n") << record.dump(-1, ' ', false, Json::error_handler_t::replace);
    return {};
  };
  HORO_ASSIGN(size_t skipped, read_records(input.path, take));
  summary.skipped += skipped;
  return {};
}

}  // namespace

Result<MergeSummary> merge(const std::string& out_path, const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    std::error_code ignored;
    if (!std::filesystem::equivalent(path, out_path, ignored)) continue;
    return Status(Code::kInvalidArgument, text("'", out_path, "' would replace a file that is to be merged"));
  }
  HORO_ASSIGN(std::vector<Input> inputs, read_inputs(files));
  std::vector<Track> tracks;
  for (const Input& input : inputs) tracks.push_back(input.track);
  const std::vector<Aligned> aligned = align(tracks);
  double zero = 0;
  for (const Aligned& one : aligned) zero = std::min(zero, one.shift.at(0));
  std::ofstream out(out_path);
  MergeSummary summary;
  for (size_t i = 0; i < inputs.size(); ++i) {
    summary.ranks.push_back(sentence(tracks[i], tracks[0], aligned[i]));
    HORO_TRY(write_shifted(inputs[i], aligned[i].shift, zero, out, summary));
  }
  out << "\n]\n";
  out.close();
  if (!out) return Status(Code::kUnavailable, text("cannot write '", out_path, "'"));
  return summary;
}

}  // namespace horo::cli::timeline
