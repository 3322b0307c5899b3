// What the agent of an elastic job does without its launcher: finds out whether that is really gone, tells the user,
// and keeps what ranks write.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "cli/run/lines.h"
#include "cli/run/message.h"

#include "horo/base/deadline.h"
#include "horo/net/fd.h"

namespace horo::cli::launch {

/// What is needed to ask the launcher's store.
struct StoreAccess {
  std::string address;
  std::string job;
  std::array<std::byte, 32> key{};

  static StoreAccess of(const StartOrder& order);
};

/// Whether somebody answers there who has the job's key.
bool store_answers(const StoreAccess& store, Deadline deadline);

/// Files that the launcher has made for what a rank writes, as far as this host sees them; else it is lost.
class OutputFiles {
 public:
  void write(int rank, const std::string& folder, Stream stream, std::string_view bytes);

 private:
  std::map<std::pair<int, Stream>, net::UniqueFd> files_;
};

}  // namespace horo::cli::launch
