// Two hosts of one machine: network namespaces joined by a cable that can be cut. Needs root and the ip program.
#pragma once

#include <string>

namespace horo::test {

/// 10.77.0.1 and 10.77.0.2, under names of this process's own; gone at the end of its life.
class TwoHosts {
 public:
  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  /// False where namespaces cannot be made.
  bool made() const { return made_; }
  bool cut() const;
  bool mend() const;
  /// Moves the calling process to a host.
  bool enter(int host) const;

 private:
  std::string names_[2];
  bool made_ = false;
};

}  // namespace horo::test
