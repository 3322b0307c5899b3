// Cutting a run of elements into parts that differ by at most one element.
#pragma once

#include <algorithm>
#include <cstdint>

namespace horo::collective {

/// A run of elements within some array.
struct Run {
  uint64_t offset = 0;
  uint64_t count = 0;
  uint64_t end() const { return offset + count; }
};

/// `run` cut into `parts`; the first parts are the longer ones.
class Cut {
 public:
  Cut(Run run, uint64_t parts) : run_(run), parts_(parts), short_(run.count / parts), longer_(run.count % parts) {}
  Cut(uint64_t count, uint64_t parts) : Cut(Run{0, count}, parts) {}

  uint64_t parts() const { return parts_; }
  Run part(uint64_t index) const {
    return {run_.offset + index * short_ + std::min(index, longer_), short_ + (index < longer_ ? 1 : 0)};
  }
  /// Parts first .. last - 1 as one run.
  Run span(uint64_t first, uint64_t last) const {
    uint64_t begin = part(first).offset;
    return {begin, (last == parts_ ? run_.end() : part(last).offset) - begin};
  }
  /// How many non-empty pieces all parts have when each is cut again into `pieces`.
  uint64_t pieces(uint64_t pieces) const {
    return longer_ * std::min(pieces, short_ + 1) + (parts_ - longer_) * std::min(pieces, short_);
  }
  uint64_t longest() const { return short_ + (longer_ > 0 ? 1 : 0); }

 private:
  Run run_;
  uint64_t parts_;
  uint64_t short_;
  uint64_t longer_;
};

}  // namespace horo::collective
