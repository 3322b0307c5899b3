#include "horo/transport/page.h"

namespace horo::transport {

void ControlPage::revoke(const std::vector<int>& evicted) const {
  for (int member : evicted) {
    MemberWords& words = members_[member];
    for (Arrival& arrival : words.arrival) arrival.word.evict();
    words.copied.word.evict();
    words.reduced.word.evict();
    words.device.word.evict();
    words.taken.word.mark_gone();
  }
  for (int member = 0; member < size_; ++member) {
    MemberWords& words = members_[member];
    for (Arrival& arrival : words.arrival) arrival.word.revoke();
    words.copied.word.revoke();
    words.reduced.word.revoke();
    words.device.word.revoke();
  }
}

std::vector<int> ControlPage::evicted() const {
  std::vector<int> members;
  for (int member = 0; member < size_; ++member) {
    if (evicted(member)) members.push_back(member);
  }
  return members;
}

}  // namespace horo::transport
