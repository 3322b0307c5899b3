#include "horo/collective/direct/push.h"

#include <algorithm>
#include <cstring>

#include "horo/collective/direct/pointers.h"

namespace horo::collective::direct {

namespace {

constexpr size_t kBlockBytes = 16 * 1024;  // Added, and written to the others while in the first cache.

class Push {
 public:
  Push(Protocol& protocol, const Call& call, const Reduction& reduction, std::span<const Place> places,
       kernel::CombineManyFn combine)
      : protocol_(protocol),
        call_(call),
        reduction_(reduction),
        places_(places),
        combine_(combine),
        element_(size_of(reduction.dtype)) {
    for (const Place& place : places) {
      head_ = std::max(head_, place.margins.head / element_);
      tail_ = std::max(tail_, place.margins.tail / element_);
    }
  }

  Status run() {
    add_margins();
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

  // The largest of all members' margins: what is no whole page of one is pushed to none.
  void add_margins() {
    const size_t page = protocol_.thresholds().page_bytes;
    Pointers inputs(protocol_.size());
    for (int member = 0; member < protocol_.size(); ++member) inputs[member] = protocol_.slot(member);
    combine_(mine().out, inputs.span(), head_, reduction_.scaling);
    for (int member = 0; member < protocol_.size(); ++member) {
      inputs[member] = protocol_.slot(member) + 2 * page - tail_ * element_;
    }
    combine_(mine().out + (reduction_.count - tail_) * element_, inputs.span(), tail_, reduction_.scaling);
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
  const std::span<const Place> places_;
  const kernel::CombineManyFn combine_;
  const size_t element_;
  uint64_t head_ = 0, tail_ = 0;  ///< Elements.
};

}  // namespace

Margins margins(uint64_t offset, uint64_t bytes, size_t page) {
  return {(page - offset % page) % page, (offset + bytes) % page};
}

bool can_push(const Protocol& protocol, const Reduction& reduction, uint64_t offset) {
  const size_t page = protocol.thresholds().page_bytes;
  const size_t element = size_of(reduction.dtype);
  return offset % element == 0 && 2 * page <= protocol.thresholds().slot_bytes && reduction.count * element >= 4 * page;
}

void bring_margins(Protocol& protocol, const Reduction& reduction) {
  const size_t page = protocol.thresholds().page_bytes;
  std::byte* slot = protocol.next_slot();
  std::memcpy(slot, reduction.in, page);
  std::memcpy(slot + page, reduction.in + reduction.count * size_of(reduction.dtype) - page, page);
}

Status push(Protocol& protocol, const Call& call, const Reduction& reduction, std::span<const Place> places,
            kernel::CombineManyFn combine) {
  return Push(protocol, call, reduction, places, combine).run();
}

// Frozen words tell whether anybody can have found all members there, and so whether anybody can have begun.
Status end_pushes(const Protocol& protocol, const Reduction& reduction, uint64_t offset, const Status& status) {
  // What fails for all members alike fails before anybody begins, and the group goes on.
  if (status.ok() || status.code() == Code::kMismatch || status.code() == Code::kUnavailable) return status;
  protocol.space().page.revoke({});
  if (!protocol.all_came()) return status;
  const uint64_t bytes = reduction.count * size_of(reduction.dtype);
  const Margins beside = margins(offset, bytes, protocol.thresholds().page_bytes);
  protocol.space().own_buffers->withdraw({reduction.out + beside.head, bytes - beside.head - beside.tail});
  return reduction.in == reduction.out ? status.with_contents_lost() : status;
}

}  // namespace horo::collective::direct
