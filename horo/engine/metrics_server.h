// Serves text to whoever asks for it over HTTP, and nothing else.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "horo/base/log.h"
#include "horo/base/status.h"
#include "horo/base/thread.h"
#include "horo/net/address.h"

namespace horo::engine {

/// What to answer to the first bytes of a client; empty while the request is not complete.
///
/// Pure. `GET /metrics` (and `/`) is answered with the page, HEAD with its headers, everything else with an error. A
/// body is not read, nor is a second request: the connection ends with the answer.
std::string http_answer(std::string_view request, const std::function<std::string()>& page);
/// A request that is longer is refused.
inline constexpr size_t kLongestRequest = 4 << 10;

/// One thread, `horo-metrics`, serves all clients. Every client has `patience` from its connection to its end; beyond
/// kMostClients the one that has been there longest goes, and so does one that says more than kLongestRequest after its
/// answer. So neither slow nor many nor talkative clients take more than a fixed amount of memory and descriptors, and
/// none can change anything.
class MetricsServer {
 public:
  static Result<std::unique_ptr<MetricsServer>> start(const net::Address& at, std::function<std::string()> page,
                                                      Log& log, Duration patience = std::chrono::seconds(2));
  ~MetricsServer();

  /// With the port that the system chose.
  const net::Address& address() const;

  static constexpr size_t kMostClients = 64;

 private:
  class Loop;
  explicit MetricsServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
  Thread thread_;
};

}  // namespace horo::engine
