#include "horo/collective/direct/push.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "horo/collective/direct/pointers.h"

namespace horo::collective::direct {

namespace {

constexpr size_t kBlockBytes = 16 * 1024;  // Added, and written to the others while in the first cache.

/// Bytes of a buffer before its first whole page, and after its last.
struct Margins {
  uint64_t head = 0;
  uint64_t tail = 0;
};

Margins margins(const Protocol& protocol, const Reduction& reduction, const Offer& offer) {
  const size_t page = protocol.thresholds().page_bytes;
  return {(page - offer.out % page) % page, (offer.out + reduction.count * size_of(reduction.dtype)) % page};
}

/// Where a member's input and output lie, as this member sees them.
struct Place {
  const std::byte* in;
  std::byte* out;
};

class Push {
 public:
  Push(Protocol& protocol, const Call& call, const Reduction& reduction, kernel::CombineManyFn combine)
      : protocol_(protocol),
        call_(call),
        reduction_(reduction),
        combine_(combine),
        element_(size_of(reduction.dtype)) {}

  Status run(std::span<const Offer> offers) {
    HORO_TRY(find(offers));
    if (head_ + tail_ > 0) HORO_TRY(add_margins());
    HORO_TRY(push_slice());
    for (int member = 0; member < protocol_.size(); ++member) {
      if (member == protocol_.rank()) continue;
      HORO_TRY(protocol_.wait_for(call_, member, protocol_.words(member).reduced.word, protocol_.count(kLast)));
    }
    return {};
  }

 private:
  static constexpr uint64_t kLast = transport::kMaxSteps;

  const Place& mine() const { return places_[static_cast<size_t>(protocol_.rank())]; }

  Status find(std::span<const Offer> offers) {
    places_.reserve(offers.size());
    for (int member = 0; member < protocol_.size(); ++member) {
      const Offer& offer = offers[static_cast<size_t>(member)];
      const std::span<std::byte> buffers = protocol_.space().buffers[static_cast<size_t>(member)];
      const uint64_t bytes = reduction_.count * element_;
      if (bytes > buffers.size() || std::max(offer.in, offer.out) > buffers.size() - bytes) {
        return protocol_.lies_outside(call_, member);
      }
      places_.push_back({buffers.data() + offer.in, buffers.data() + offer.out});
      const Margins beside = margins(protocol_, reduction_, offer);
      head_ = std::max(head_, beside.head / element_);
      tail_ = std::max(tail_, beside.tail / element_);
    }
    return {};
  }

  // The largest of all members' margins: what is no whole page of one is pushed to none.
  Status add_margins() {
    const uint64_t behind = (reduction_.count - tail_) * element_;
    std::byte* slot = protocol_.next_slot();
    std::memcpy(slot, reduction_.in, head_ * element_);
    std::memcpy(slot + head_ * element_, reduction_.in + behind, tail_ * element_);
    HORO_TRY(protocol_.meet(call_, {}));
    Pointers inputs(protocol_.size());
    for (int member = 0; member < protocol_.size(); ++member) inputs[member] = protocol_.slot(member);
    combine_(reduction_.out, inputs.span(), head_, reduction_.scaling);
    for (int member = 0; member < protocol_.size(); ++member) inputs[member] += head_ * element_;
    combine_(reduction_.out + behind, inputs.span(), tail_, reduction_.scaling);
    return {};
  }

  Status push_slice() {
    const auto size = static_cast<uint64_t>(protocol_.size());
    const uint64_t line = transport::kCacheLine / element_;
    const uint64_t end = reduction_.count - tail_;
    // Slices begin on cache lines of whoever has the widest margin, so that no two members write the same line there.
    const uint64_t slice = ((end - head_ + size - 1) / size + line - 1) / line * line;
    const uint64_t first = std::min(end, head_ + static_cast<uint64_t>(protocol_.rank()) * slice);
    const uint64_t last = std::min(end, first + slice);
    const uint64_t step = std::max<uint64_t>(protocol_.thresholds().step_bytes / element_, (last - first) / kLast + 1);
    uint64_t done = 0;
    for (uint64_t at = first; at < last; at += step) {
      push_range(at, std::min(step, last - at));
      if (at + step < last) HORO_TRY(advance(++done));
    }
    return advance(kLast);
  }

  Status advance(uint64_t step) {
    return protocol_.advance(call_, protocol_.words(protocol_.rank()).reduced.word, protocol_.count(step));
  }

  void push_range(uint64_t first, uint64_t count) {
    const uint64_t block = kBlockBytes / element_;
    Pointers inputs(protocol_.size());
    for (uint64_t at = first; at < first + count; at += block) {
      const uint64_t elements = std::min(block, first + count - at);
      const uint64_t offset = at * element_;
      for (int member = 0; member < protocol_.size(); ++member) {
        inputs[member] = places_[static_cast<size_t>(member)].in + offset;
      }
      combine_(mine().out + offset, inputs.span(), elements, reduction_.scaling);
      for (int i = 1; i < protocol_.size(); ++i) {
        const int member = (protocol_.rank() + i) % protocol_.size();
        std::memcpy(places_[static_cast<size_t>(member)].out + offset, mine().out + offset, elements * element_);
      }
    }
  }

  Protocol& protocol_;
  const Call& call_;
  const Reduction& reduction_;
  const kernel::CombineManyFn combine_;
  const size_t element_;
  std::vector<Place> places_;
  uint64_t head_ = 0, tail_ = 0;  ///< Elements.
};

}  // namespace

// Margins are elements, and fit into a slot; beyond them there is something to push.
std::optional<Offer> offer_of(const Protocol& protocol, const Call& call, const Reduction& reduction) {
  if (call.signature.kind != transport::Kind::kAllreduce) return std::nullopt;
  const size_t element = size_of(reduction.dtype);
  const uint64_t bytes = reduction.count * element;
  const size_t page = protocol.thresholds().page_bytes;
  if (bytes < 4 * page || 2 * page > protocol.thresholds().slot_bytes) return std::nullopt;
  const auto in = protocol.offset_in_buffers(reduction.in, bytes);
  const auto out = protocol.offset_in_buffers(reduction.out, bytes);
  if (!in || !out || *out % element != 0) return std::nullopt;
  return Offer{*in, *out};
}

Status push(Protocol& protocol, const Call& call, const Reduction& reduction, std::span<const Offer> offers,
            kernel::CombineManyFn combine) {
  return Push(protocol, call, reduction, combine).run(offers);
}

// Frozen words tell whether anybody can have found all members there, and so whether anybody can have begun.
Status end_pushes(const Protocol& protocol, const Reduction& reduction, const Offer& mine, const Status& status) {
  // What fails for all members alike fails before anybody begins, and the group goes on.
  if (status.ok() || status.code() == Code::kMismatch || status.code() == Code::kUnavailable) return status;
  protocol.space().page.revoke({});
  if (!protocol.all_came()) return status;
  const Margins beside = margins(protocol, reduction, mine);
  const uint64_t bytes = reduction.count * size_of(reduction.dtype);
  protocol.space().own_buffers->withdraw({reduction.out + beside.head, bytes - beside.head - beside.tail});
  return reduction.in == reduction.out ? status.with_contents_lost() : status;
}

}  // namespace horo::collective::direct
