#include "horo/engine/exposition.h"

#include <cstdio>
#include <functional>

#include "horo/base/text.h"

namespace horo::engine {

namespace {

std::string number_text(double value) {
  char out[40];
  std::snprintf(out, sizeof out, "%.10g", value);
  return out;
}

class Page {
 public:
  Page(const Metrics& metrics, int rank) : sets_(metrics.all()), rank_(text("rank=\"", rank, "\"")) {}

  void head(std::string_view name, std::string_view type, std::string_view help) {
    out_ += text("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void sample(std::string_view name, std::string_view labels, const std::string& value) {
    out_ += text(name, "{", rank_, labels.empty() ? "" : ",", labels, "} ", value, "\n");
  }
  void whole(std::string_view name, std::string_view type, std::string_view help, uint64_t value) {
    head(name, type, help);
    sample(name, {}, std::to_string(value));
  }
  /// One number per process set and kind that was used.
  void of_kinds(std::string_view name, std::string_view help, Counter KindMetrics::*counter) {
    head(name, "counter", help);
    each_kind([&](const std::string& labels, const KindMetrics& kind) {
      sample(name, labels, std::to_string((kind.*counter).get()));
    });
  }
  void of_kinds(std::string_view name, std::string_view help, Histogram KindMetrics::*histogram) {
    head(name, "histogram", help);
    each_kind(
        [&](const std::string& labels, const KindMetrics& kind) { buckets(name, labels, (kind.*histogram).values()); });
  }
  /// One number per process set; of each the counters with their label.
  void of_sets(std::string_view name, std::string_view help,
               const std::vector<std::pair<std::string, Counter SetMetrics::*>>& counters) {
    head(name, "counter", help);
    for (const auto& [number, set] : sets_) {
      for (const auto& [label, counter] : counters) {
        const std::string labels = text("process_set=\"", number, "\"", label.empty() ? "" : ",", label);
        sample(name, labels, std::to_string((set->*counter).get()));
      }
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void each_kind(const std::function<void(const std::string&, const KindMetrics&)>& visit) const {
    for (const auto& [number, set] : sets_) {
      for (int k = 0; k < kKindCount; ++k) {
        const auto kind = static_cast<Kind>(k);
        if (set->of(kind).handed_in.get() == 0) continue;
        visit(text("process_set=\"", number, "\",operation=\"", label_text(name(kind)), "\""), set->of(kind));
      }
    }
  }
  void buckets(std::string_view name, const std::string& labels, const Histogram::Values& values) {
    uint64_t so_far = 0;
    for (size_t i = 0; i < values.counts.size(); ++i) {
      so_far += values.counts[i];
      const std::string bound = i < Histogram::kBounds ? number_text(Histogram::bound_seconds(i)) : "+Inf";
      sample(text(name, "_bucket"), text(labels, ",le=\"", bound, "\""), std::to_string(so_far));
    }
    sample(text(name, "_sum"), labels, number_text(values.sum_seconds));
    sample(text(name, "_count"), labels, std::to_string(so_far));
  }

  const std::map<int, const SetMetrics*> sets_;
  const std::string rank_;
  std::string out_;
};

}  // namespace

std::string label_text(std::string_view value) {
  std::string out;
  for (char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

std::string exposition(const Metrics& metrics, const RankFacts& facts) {
  Page page(metrics, facts.rank);
  page.head("horo_rank_info", "gauge", "Where the rank is; always 1.");
  page.sample("horo_rank_info", text("host=\"", label_text(facts.host), "\""), "1");
  page.whole("horo_size", "gauge", "Ranks that the job was started with.", static_cast<uint64_t>(facts.size));
  page.whole("horo_epoch", "gauge", "Changes of membership.", facts.epoch);
  page.whole("horo_timeline_dropped_total", "counter", "Events that the timeline left out.", facts.timeline_dropped);
  page.of_kinds("horo_handed_in_total", "Tensors handed in.", &KindMetrics::handed_in);
  page.of_kinds("horo_tensors_total", "Tensors done with success.", &KindMetrics::tensors);
  page.of_kinds("horo_errors_total", "Tensors that failed.", &KindMetrics::errors);
  page.of_kinds("horo_bytes_total", "Bytes of the tensors done with success, on this rank.", &KindMetrics::bytes);
  page.of_kinds("horo_batches_total", "Operations run; each runs one tensor or more.", &KindMetrics::batches);
  page.of_kinds("horo_latency_seconds", "From the hand-in to the result.", &KindMetrics::latency);
  page.of_kinds("horo_wait_seconds", "From the hand-in until all ranks had handed it in.", &KindMetrics::wait);
  page.of_sets(
      "horo_announcements_total", "Tensors and groups announced: those that the cache knew by number.",
      {{"way=\"number\"", &SetMetrics::announced_by_number}, {"way=\"full\"", &SetMetrics::announced_in_full}});
  page.of_sets(
      "horo_messages_total", "Messages of the negotiation.",
      {{"direction=\"sent\"", &SetMetrics::messages_sent}, {"direction=\"received\"", &SetMetrics::messages_received}});
  page.of_sets("horo_stalls_total", "Reports about tensors that some ranks have not handed in.",
               {{"", &SetMetrics::stalls}});
  return page.take();
}

}  // namespace horo::engine
