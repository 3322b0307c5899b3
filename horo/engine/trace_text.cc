#include "horo/engine/trace_text.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>

#include "horo/base/json.h"
#include "horo/base/text.h"

namespace horo::engine {

namespace {

std::string upper(std::string_view words) {
  std::string out(words);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::toupper(c); });
  return out;
}

std::string key_of(int set, std::string_view name) { return text(set, '/', name); }

/// Microseconds with three digits behind the point, which is what a trace counts in.
std::string microseconds(Duration span) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(span).count();
  char out[40];
  std::snprintf(out, sizeof out, "%lld.%03lld", static_cast<long long>(ns / 1000), static_cast<long long>(ns % 1000));
  return out;
}

std::string error_of(const TraceEvent& event) {
  return event.words.empty() ? std::string() : text("\"error\":", json_quoted(event.words));
}

}  // namespace

std::string TraceText::time_text(Time at) const { return microseconds(std::max(at - origin_.start, Duration::zero())); }

std::string TraceText::first() const {
  const auto start = std::chrono::duration_cast<std::chrono::nanoseconds>(origin_.start.time_since_epoch()).count();
  return text(R"({"name":"horo_timeline","ph":"M","pid":)", origin_.rank, R"(,"tid":0,"args":{"version":1,"rank":)",
              origin_.rank, R"(,"size":)", origin_.size, R"(,"host":)", json_quoted(origin_.host), R"(,"clock":)",
              json_quoted(origin_.clock), R"(,"start_ns":)", start, R"(,"wall_us":)", origin_.wall_us, "}},\n",
              R"({"name":"process_name","ph":"M","pid":)", origin_.rank, R"(,"tid":0,"args":{"name":)",
              json_quoted(text("rank ", origin_.rank, " on ", origin_.host)), "}},\n",
              R"({"name":"process_sort_index","ph":"M","pid":)", origin_.rank, R"(,"tid":0,"args":{"sort_index":)",
              origin_.rank, "}}");
}

void TraceText::name_row(int number, std::string_view name, std::string& out) {
  out += text(",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":", origin_.rank, ",\"tid\":", number,
              ",\"args\":{\"name\":", json_quoted(name), "}}");
}

int TraceText::row_of_set(int set, std::string& out) {
  const auto [found, fresh] = set_rows_.try_emplace(set, next_row_);
  if (fresh) {
    ++next_row_;
    name_row(found->second, set == 0 ? std::string("operations") : text("operations of process set ", set), out);
    out += text(",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":", origin_.rank, ",\"tid\":", found->second,
                ",\"args\":{\"sort_index\":-1}}");
  }
  return found->second;
}

TraceText::Row* TraceText::find(const std::string& key) {
  auto found = rows_.find(key);
  return found == rows_.end() ? nullptr : &found->second;
}

TraceText::Row& TraceText::row_of(int set, const std::string& name, std::string& out) {
  row_of_set(set, out);
  const std::string key = key_of(set, name);
  if (Row* known = find(key)) return *known;
  Row row;
  row.shared = own_rows_ >= kMostRows;
  if (row.shared && !free_rows_.empty()) {
    row.number = free_rows_.back();
    free_rows_.pop_back();
  } else {
    row.number = next_row_++;
    name_row(row.number, row.shared ? "more tensors" : set == 0 ? name : text(name, " (set ", set, ")"), out);
  }
  own_rows_ += row.shared ? 0 : 1;
  return rows_[key] = row;
}

void TraceText::let_go(const std::string& key) {
  auto found = rows_.find(key);
  if (found == rows_.end() || !found->second.shared) return;
  free_rows_.push_back(found->second.number);
  rows_.erase(found);
}

void TraceText::begin(Row& row, Time at, std::string_view name, std::string_view arguments, std::string& out) {
  out += text(",\n{\"name\":", json_quoted(name), ",\"ph\":\"B\",\"pid\":", origin_.rank, ",\"tid\":", row.number,
              ",\"ts\":", time_text(at));
  if (!arguments.empty()) out += text(",\"args\":{", arguments, "}");
  out += "}";
  ++row.open;
}

void TraceText::end(Row& row, Time at, std::string_view arguments, std::string& out) {
  if (row.open == 0) return;
  out += text(",\n{\"ph\":\"E\",\"pid\":", origin_.rank, ",\"tid\":", row.number, ",\"ts\":", time_text(at));
  if (!arguments.empty()) out += text(",\"args\":{", arguments, "}");
  out += "}";
  --row.open;
}

void TraceText::end_all(Row& row, Time at, std::string_view arguments, std::string& out) {
  while (row.open > 0) end(row, at, row.open == 1 ? arguments : std::string_view(), out);
}

void TraceText::instant(int row, Time at, std::string_view name, std::string_view arguments, std::string& out) {
  out += text(",\n{\"name\":", json_quoted(name), ",\"ph\":\"i\",\"s\":\"t\",\"pid\":", origin_.rank, ",\"tid\":", row,
              ",\"ts\":", time_text(at));
  if (!arguments.empty()) out += text(",\"args\":{", arguments, "}");
  out += "}";
}

void TraceText::handed_in(const TraceEvent& event, std::string& out) {
  for (const TraceTensor& tensor : event.tensors) {
    Row& row = row_of(event.set, tensor.name, out);
    end_all(row, event.at, {}, out);
    begin(row, event.at, text("NEGOTIATE_", upper(name(tensor.kind))),
          text("\"tensor\":", json_quoted(tensor.name), ",\"dtype\":\"", horo::name(tensor.dtype),
               "\",\"bytes\":", tensor.bytes, ",\"process_set\":", event.set, ",\"group\":", event.tensors.size()),
          out);
  }
}

void TraceText::agreed(const TraceEvent& event, std::string& out) {
  Batch batch;
  batch.kind = event.tensors.empty() ? Kind::kBarrier : event.tensors.front().kind;
  for (const TraceTensor& tensor : event.tensors) {
    batch.bytes += tensor.bytes;
    batch.keys.push_back(key_of(event.set, tensor.name));
    Row& row = row_of(event.set, tensor.name, out);
    end_all(row, event.at, {}, out);
    begin(row, event.at, upper(name(tensor.kind)),
          text("\"tensor\":", json_quoted(tensor.name), ",\"batch\":", event.batch,
               ",\"tensors\":", event.tensors.size()),
          out);
    begin(row, event.at, "QUEUE", {}, out);
  }
  if (batches_.size() >= kMostRows) batches_.erase(batches_.begin());  // Whose end was dropped.
  batches_[{event.set, event.batch}] = std::move(batch);
}

void TraceText::activity(const TraceEvent& event, Batch& batch, std::string& out) {
  const size_t count = event.part.empty() ? batch.keys.size() : event.part.size();
  const std::string detail = event.detail.empty() ? "" : text("\"algorithm\":", json_quoted(event.detail));
  for (size_t i = 0; i < count; ++i) {
    const size_t place = event.part.empty() ? i : event.part[i];
    Row* row = place < batch.keys.size() ? find(batch.keys[place]) : nullptr;
    if (row == nullptr) continue;
    event.step == TraceStep::kBegin ? begin(*row, event.at, event.words, {}, out) : end(*row, event.at, detail, out);
  }
  if (event.carries) carried(event, batch, out);
}

// The bar in the row of the set, by which the clocks of several ranks are aligned: the n-th of a batch is the same
// operation everywhere.
void TraceText::carried(const TraceEvent& event, Batch& batch, std::string& out) {
  if (event.step == TraceStep::kBegin) {
    batch.carried_since = event.at;
    return;
  }
  out +=
      text(",\n{\"name\":", json_quoted(event.words), ",\"ph\":\"X\",\"pid\":", origin_.rank,
           ",\"tid\":", row_of_set(event.set, out), ",\"ts\":", time_text(batch.carried_since),
           ",\"dur\":", microseconds(event.at - batch.carried_since), ",\"args\":{\"operation\":\"", name(batch.kind),
           "\",\"algorithm\":", json_quoted(event.detail), ",\"process_set\":", event.set, ",\"batch\":", event.batch,
           ",\"part\":", batch.carried++, ",\"tensors\":", batch.keys.size(), ",\"bytes\":", batch.bytes, "}}");
}

void TraceText::over(const std::vector<std::string>& keys, const TraceEvent& event, std::string& out) {
  for (const std::string& key : keys) {
    if (Row* row = find(key)) end_all(*row, event.at, error_of(event), out);
    let_go(key);
  }
}

void TraceText::add(const TraceEvent& event, std::string& out) {
  if (event.step == TraceStep::kHandedIn) return handed_in(event, out);
  if (event.step == TraceStep::kAgreed) return agreed(event, out);
  if (event.step == TraceStep::kCycle) return instant(row_of_set(event.set, out), event.at, "CYCLE_START", {}, out);
  if (event.step == TraceStep::kEnded) {
    return instant(row_of_set(event.set, out), event.at, "ENDED", error_of(event), out);
  }
  if (event.step == TraceStep::kReady) {
    const Row& row = row_of(event.set, event.words, out);
    return instant(row.number, event.at, text("ready: ", ranks_text(event.ranks)), {}, out);
  }
  if (event.step == TraceStep::kFailed) {
    std::vector<std::string> keys;
    for (const TraceTensor& tensor : event.tensors) keys.push_back(key_of(event.set, tensor.name));
    return over(keys, event, out);
  }
  auto found = batches_.find({event.set, event.batch});
  if (found == batches_.end()) return;  // Agreed on before the timeline began.
  Batch& batch = found->second;
  if (event.step == TraceStep::kBegun) {
    for (const std::string& key : batch.keys) {
      if (Row* row = find(key); row != nullptr && row->open > 1) end(*row, event.at, {}, out);
    }
  } else if (event.step == TraceStep::kDone) {
    over(batch.keys, event, out);
    batches_.erase(found);
  } else {
    activity(event, batch, out);
  }
}

void TraceText::add_dropped(uint64_t count, Time at, std::string& out) {
  instant(row_of_set(0, out), at, "EVENTS_DROPPED", text("\"count\":", count), out);
}

}  // namespace horo::engine
