#include "horo/base/status.h"

#include <array>
#include <ostream>

#include "horo/base/immortal.h"
#include "horo/base/text.h"

namespace horo {

namespace {

constexpr std::array<std::string_view, 15> kCodeNames = {
    "ok",      "invalid-argument", "mismatch",     "timeout",     "peer-lost",
    "evicted", "unauthenticated",  "incompatible", "unavailable", "stopped",
    "corrupt", "forked",           "not-found",    "interrupted", "internal"};

}  // namespace

std::string_view code_name(Code code) {
  auto index = static_cast<size_t>(code);
  return index < kCodeNames.size() ? kCodeNames[index] : "unknown";
}

Status::Status(Code code, std::string message) {
  HORO_CHECK(code != Code::kOk, "an OK status has no message");
  auto detail = std::make_shared<Detail>();
  detail->code = code;
  detail->message = std::move(message);
  detail_ = std::move(detail);
}

Code Status::code() const { return detail_ ? detail_->code : Code::kOk; }

const std::string& Status::message() const {
  static const Immortal<std::string> kNone([] { return std::string(); });
  return detail_ ? detail_->message : *kNone;
}

const std::vector<int>& Status::lost() const {
  static const Immortal<std::vector<int>> kNone([] { return std::vector<int>(); });
  return detail_ ? detail_->lost : *kNone;
}

std::optional<uint64_t> Status::operation() const { return detail_ ? detail_->operation : std::nullopt; }

bool Status::contents_intact() const { return !detail_ || detail_->contents_intact; }

template <class Change>
Status Status::changed(Change change) const {
  HORO_CHECK(detail_ != nullptr, "an OK status carries nothing");
  auto copy = std::make_shared<Detail>(*detail_);
  change(*copy);
  Status status;
  status.detail_ = std::move(copy);
  return status;
}

Status Status::with_lost(std::vector<int> ranks) const {
  return changed([&](Detail& detail) { detail.lost = std::move(ranks); });
}

Status Status::with_operation(uint64_t number) const {
  return changed([&](Detail& detail) { detail.operation = number; });
}

Status Status::with_contents_lost() const {
  return changed([](Detail& detail) { detail.contents_intact = false; });
}

Status Status::prefixed(std::string_view prefix) const {
  return changed([&](Detail& detail) { detail.message = text(prefix, ": ", detail.message); });
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return text(code_name(code()), ": ", message());
}

std::ostream& operator<<(std::ostream& out, const Status& status) { return out << status.to_string(); }

}  // namespace horo
