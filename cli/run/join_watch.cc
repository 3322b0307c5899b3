#include "cli/run/join_watch.h"

#include <charconv>

#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

constexpr Duration kLookLimit = std::chrono::seconds(5);

}  // namespace

std::optional<std::string> who_is_missing(const std::set<int>& present, int size, Duration since) {
  if (present.empty() || static_cast<int>(present.size()) >= size) return {};
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!present.contains(rank)) missing.push_back(rank);
  }
  return text("still waiting for ", ranks_text(missing), " of ", size, " to join (init()), after ",
              std::chrono::duration_cast<std::chrono::seconds>(since).count(), " s");
}

std::set<int> ranks_of_keys(const std::vector<std::string>& keys) {
  std::set<int> ranks;
  for (const std::string& key : keys) {
    const std::string_view digits = std::string_view(key).substr(key.rfind('/') + 1);
    int rank = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (error == std::errc() && end == digits.data() + digits.size()) ranks.insert(rank);
  }
  return ranks;
}

std::unique_ptr<JoinWatch> JoinWatch::create(const rendezvous::TcpStoreServer& store,
                                             const rendezvous::TcpStoreOptions& options, const std::string& at,
                                             int size) {
  const auto address = net::Address::ip(at, store.address().port());
  auto wake = net::Wake::create();
  if (size < 2 || !address.ok() || !wake.ok()) return nullptr;
  return std::unique_ptr<JoinWatch>(new JoinWatch(std::move(*wake), *address, options, size));
}

std::vector<std::string> JoinWatch::step(Time now) {
  std::vector<std::string> lines;
  if (wake_.drain()) {
    const std::lock_guard lock(mutex_);
    thread_ = Thread();
    const auto words = answer_ ? who_is_missing(*answer_, size_, now - started_) : std::nullopt;
    if (words) lines.push_back(*words);
    const bool all = answer_ && static_cast<int>(answer_->size()) >= size_;
    next_ = all || looks_ >= kMostLooks ? Deadline::never() : Deadline(now + kInterval);
  }
  if (next_.expired(now)) {
    ++looks_;
    next_ = Deadline::never();
    auto thread = Thread::start("horo-join", [this](const std::stop_token&) { look(); });
    if (thread.ok()) thread_ = std::move(*thread);
  }
  return lines;
}

void JoinWatch::look() {
  const Deadline limit = Deadline::after(kLookLimit);
  std::optional<std::set<int>> present;
  if (auto store = rendezvous::TcpStore::connect(at_, options_, limit); store.ok()) {
    if (const auto entries = (*store)->list(text(options_.job, "/card/"), limit); entries.ok()) {
      std::vector<std::string> keys;
      for (const auto& [key, value] : *entries) keys.push_back(key);
      present = ranks_of_keys(keys);
    }
  }
  const std::lock_guard lock(mutex_);
  answer_ = std::move(present);
  wake_.signal();
}

}  // namespace horo::cli::launch
