// Jobs whose ranks are threads of the test, each with an engine of its own.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "horo/api/horo.hpp"
#include "horo/rendezvous/tcp_store.h"

namespace horo::api {

/// Runs `body` with the options of each of `size` ranks that meet at a store on loopback. What a rank throws fails the
/// test.
inline void run_threads(int size, const std::function<void(const horo_engine_options&)>& body,
                        std::vector<std::string> settings = {}) {
  auto none = net::Key::none();
  ASSERT_TRUE(none.ok()) << none.status();
  auto server = rendezvous::TcpStoreServer::start(
      net::Address::loopback(), {.job = "api-test", .key = std::make_shared<const net::Key>(std::move(*none))});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string store = (*server)->address().to_string();
  settings.insert(settings.end(), {"HORO_INTERFACE=127.0.0.1", "HORO_TIMEOUT=20s", "HORO_STAGING=8MiB"});
  std::vector<const char*> words;
  for (const std::string& setting : settings) words.push_back(setting.c_str());
  words.push_back(nullptr);
  std::vector<std::string> thrown(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
        options.rank = rank;
        options.size = size;
        options.store = store.c_str();
        options.job = "api-test";
        options.settings = words.data();
        body(options);
      } catch (const std::exception& error) {
        thrown[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 0; rank < size; ++rank) EXPECT_EQ(thrown[static_cast<size_t>(rank)], "") << "thrown by rank " << rank;
}

inline void run_ranks(int size, const std::function<void(Engine&)>& body, std::vector<std::string> settings = {}) {
  const auto start = [&](const horo_engine_options& options) {
    Engine engine(options);
    body(engine);
  };
  run_threads(size, start, std::move(settings));
}

}  // namespace horo::api
