// Counters, histograms, what Prometheus reads, and the server that it reads from.
#include "horo/engine/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <thread>

#include "horo/base/pattern_testing.h"
#include "horo/base/text.h"
#include "horo/engine/exposition.h"
#include "horo/engine/metrics_server.h"
#include "horo/net/poller.h"
#include "horo/net/socket.h"

namespace horo::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(Histogram, ABoundBelongsToItsBucketAndWhatIsBeyondToTheLast) {
  const auto bucket_of = [](Duration span) {
    Histogram one;
    one.add(span);
    const auto counts = one.values().counts;
    return static_cast<size_t>(std::find(counts.begin(), counts.end(), 1u) - counts.begin());
  };
  EXPECT_EQ(bucket_of(nanoseconds(0)), 0u);
  EXPECT_EQ(bucket_of(nanoseconds(-5)), 0u);
  for (size_t k = 0; k < Histogram::kBounds; ++k) {
    const microseconds bound(int64_t{1} << k);
    EXPECT_EQ(bucket_of(bound), k);
    EXPECT_EQ(bucket_of(bound + nanoseconds(1)), k + 1);
    EXPECT_DOUBLE_EQ(Histogram::bound_seconds(k), std::chrono::duration<double>(bound).count());
  }
  EXPECT_EQ(bucket_of(std::chrono::hours(1000)), Histogram::kBounds);
}

TEST(Histogram, ThreadsLoseNothing) {
  Histogram histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) histogram.add(microseconds(i % 100));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.values().count(), 40'000u);
  EXPECT_NEAR(histogram.values().sum_seconds, 40'000 * 49.5e-6, 1e-9);
}

TEST(Metrics, SetsBeyondTheLimitAreCountedTogether) {
  Metrics metrics;
  EXPECT_EQ(metrics.find(0), nullptr);
  metrics.set(0).stalls.add();
  metrics.set(Metrics::kMostSets).stalls.add(2);
  metrics.set(12345).stalls.add(3);
  EXPECT_EQ(&metrics.set(0), metrics.find(0));
  EXPECT_EQ(metrics.find(Metrics::kMostSets)->stalls.get(), 5u);
  EXPECT_EQ(metrics.find(-1), nullptr);
  EXPECT_EQ(metrics.all().size(), 2u);
}

/// Reads an exposition as strictly as its definition is: names, labels, values, and TYPE before the samples.
std::map<std::string, double> parsed(const std::string& page) {
  std::map<std::string, double> samples;
  std::string family;
  constexpr const char* kSample = R"re(^([a-z_]+)[{](([a-z_]+="([^"\]|\\["\n])*",?)*)[}] ([^[:space:]]+)$)re";
  std::istringstream lines(page);
  EXPECT_TRUE(page.ends_with('\n'));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) continue;
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      continue;
    }
    const auto found = test::find_all(kSample, line);
    if (found.empty()) {
      ADD_FAILURE() << line;
      continue;
    }
    const std::vector<std::string>& match = found.front();
    EXPECT_TRUE(match[1].starts_with(family)) << line << " under " << family;
    EXPECT_TRUE(samples.emplace(text(match[1], "{", match[2], "}"), std::stod(match[5])).second) << "twice: " << line;
  }
  return samples;
}

TEST(Exposition, IsWhatPrometheusReads) {
  Metrics metrics;
  KindMetrics& kind = metrics.set(3).of(Kind::kAllreduce);
  kind.handed_in.add(5);
  kind.tensors.add(4);
  kind.bytes.add(4096);
  kind.batches.add(2);
  for (int us : {1, 3, 3, 1000}) kind.latency.add(microseconds(us));
  kind.wait.add(std::chrono::hours(1));
  metrics.set(3).announced_by_number.add(7);
  const auto samples = parsed(exposition(metrics, {.rank = 2, .size = 8, .host = "a\"b\\c\nd"}));
  const auto at = [&](const std::string& name) { return samples.contains(name) ? samples.at(name) : -1; };
  EXPECT_EQ(at(R"re(horo_rank_info{rank="2",host="a\"b\\c\nd"})re"), 1);
  EXPECT_EQ(at(R"re(horo_size{rank="2"})re"), 8);
  const std::string labels = R"re(rank="2",process_set="3",operation="allreduce")re";
  EXPECT_EQ(at(text("horo_tensors_total{", labels, "}")), 4);
  EXPECT_EQ(at(text("horo_bytes_total{", labels, "}")), 4096);
  EXPECT_EQ(at(text("horo_errors_total{", labels, "}")), 0);
  EXPECT_EQ(at(text("horo_latency_seconds_bucket{", labels, ",le=\"1e-06\"}")), 1);
  EXPECT_EQ(at(text("horo_latency_seconds_bucket{", labels, ",le=\"4e-06\"}")), 3) << "buckets add up";
  EXPECT_EQ(at(text("horo_latency_seconds_bucket{", labels, ",le=\"+Inf\"}")), 4);
  EXPECT_EQ(at(text("horo_latency_seconds_count{", labels, "}")), 4);
  EXPECT_NEAR(at(text("horo_latency_seconds_sum{", labels, "}")), 1007e-6, 1e-9);
  EXPECT_EQ(at(text("horo_wait_seconds_bucket{", labels, ",le=\"67.108864\"}")), 0);
  EXPECT_EQ(at(text("horo_wait_seconds_bucket{", labels, ",le=\"+Inf\"}")), 1);
  EXPECT_EQ(at(R"re(horo_announcements_total{rank="2",process_set="3",way="number"})re"), 7);
  for (const auto& [name, value] : samples) EXPECT_EQ(name.find("broadcast"), std::string::npos) << "never used";
}

TEST(HttpAnswer, ServesThePageAndNothingElse) {
  const auto status_of = [](std::string_view request) {
    const std::string answer = http_answer(request, [] { return std::string("page\n"); });
    return answer.empty() ? std::string("more") : answer.substr(9, 3);
  };
  EXPECT_EQ(status_of("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), "200");
  EXPECT_EQ(status_of("GET /metrics?a=b HTTP/1.0\n\n"), "200");
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), "200");
  EXPECT_EQ(status_of("GET /metrics HTTP/1.1\r\nHost: x\r\n"), "more");
  EXPECT_EQ(status_of(""), "more");
  EXPECT_EQ(status_of("GET /etc/passwd HTTP/1.1\r\n\r\n"), "404");
  EXPECT_EQ(status_of("POST /metrics HTTP/1.1\r\n\r\n"), "405");
  EXPECT_EQ(status_of("\r\n\r\n"), "400");
  EXPECT_EQ(status_of("GET /metrics\r\n\r\n"), "400");
  EXPECT_EQ(status_of("GET /metrics SIP/2.0\r\n\r\n"), "400");
  EXPECT_EQ(status_of(std::string("\x16\x03\x01\x00 \0\0 \n\n", 10)), "400");
  EXPECT_EQ(status_of(std::string(kLongestRequest, 'x')), "431");
  const std::string whole = http_answer("GET /metrics HTTP/1.1\r\n\r\n", [] { return std::string("page\n"); });
  EXPECT_NE(whole.find("Content-Length: 5\r\n"), std::string::npos);
  EXPECT_TRUE(whole.ends_with("\r\n\r\npage\n"));
  EXPECT_TRUE(http_answer("HEAD / HTTP/1.1\r\n\r\n", [] { return std::string("page\n"); }).ends_with("\r\n\r\n"));
}

class Serving : public testing::Test {
 protected:
  void SetUp() override {
    auto server = MetricsServer::start(
        net::Address::loopback(), [this] { return page_; }, log_, std::chrono::hours(1));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }
  net::Socket connect() const {
    auto socket = net::Socket::connect(server_->address(), Deadline::after_seconds(10));
    EXPECT_TRUE(socket.ok()) << socket.status();
    return socket.ok() ? std::move(*socket) : net::Socket();
  }
  static bool say(const net::Socket& socket, std::string_view words) {
    return socket.send_all(std::as_bytes(std::span(words)), Deadline::after_seconds(10)).ok();
  }
  /// Until the server ends the stream.
  static std::string hear(const net::Socket& socket, Deadline deadline = Deadline::after_seconds(10)) {
    std::string heard;
    std::array<std::byte, 4096> bytes;
    while (true) {
      const net::IoResult got = socket.receive(bytes);
      if (got.is_moved()) heard.append(reinterpret_cast<const char*>(bytes.data()), got.bytes());
      if (got.is_end() || got.is_failed()) return heard;
      if (got.is_would_block() && !net::wait_ready(socket.fd(), net::Interest::kRead, deadline, "hearing").ok()) {
        return heard + "(the deadline)";
      }
    }
  }
  std::string ask(std::string_view request = "GET /metrics HTTP/1.1\r\n\r\n") const {
    const net::Socket socket = connect();
    return say(socket, request) ? hear(socket) : "(refused)";
  }

  std::string page_ = "page\n";
  Log log_{LogLevel::kOff};
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(Serving, AnswersOneClientAfterTheOther) {
  page_ = std::string(3 << 20, 'x');  // More than a socket takes at once.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask().ends_with(page_));
  EXPECT_NE(ask("GET /metrics HTTP/1.1\r\n\r\nand much more that nobody reads").find("200 OK"), std::string::npos);
}

TEST_F(Serving, GarbageIsAnsweredOrDroppedAndTheNextClientIsServed) {
  for (const std::string& words : {std::string("\0\xFF\x16\x03", 4) + "\n\n", std::string(100'000, 'x'),
                                   std::string("GET /metrics HTTP/9\r\n\r\n")}) {
    const net::Socket socket = connect();
    (void)say(socket, words);
    hear(socket);
  }
  { const net::Socket silent = connect(); }
  EXPECT_TRUE(ask().ends_with("page\n"));
}

TEST_F(Serving, ClientsThatSayNothingMakeRoomForOthers) {
  std::vector<net::Socket> silent;
  for (size_t i = 0; i < 3 * MetricsServer::kMostClients; ++i) silent.push_back(connect());
  EXPECT_TRUE(ask().ends_with("page\n"));
  EXPECT_EQ(hear(silent.front()), "") << "the one that was there longest has been sent away";
}

TEST_F(Serving, ASlowClientIsSentAway) {
  auto hasty = MetricsServer::start(
      net::Address::loopback(), [] { return std::string(); }, log_, std::chrono::milliseconds(200));
  ASSERT_TRUE(hasty.ok()) << hasty.status();
  server_ = std::move(*hasty);
  const net::Socket slow = connect();
  ASSERT_TRUE(say(slow, "GET /met"));
  EXPECT_EQ(hear(slow), "");
}

TEST_F(Serving, APortThatIsTakenIsAnError) {
  auto second = MetricsServer::start(
      server_->address(), [] { return std::string(); }, log_);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(server_->address().to_string()), std::string::npos);
}

}  // namespace
}  // namespace horo::engine
