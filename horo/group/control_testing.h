// Control threads of several ranks in one process, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "horo/group/control.h"

namespace horo::group {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

/// A rank that listens on loopback.
struct Rank {
  Rank(int rank, std::shared_ptr<const net::Key> key, Duration timeout, int size = 2) {
    self.rank = rank;
    self.job = "job";
    self.tls = net::Tls::create().value();
    self.key = std::move(key);
    control = std::make_unique<Control>(Control::Options{.self = self, .size = size, .timeout = timeout}, log);
    net::ListenerOptions options;
    options.job = self.job;
    options.channel = self.channel_options();
    options.log = &log;
    options.admit_stream = [this](const net::AttachRequest& about) { return control->admit_stream(about); };
    std::vector<net::Listener> listeners;
    listeners.push_back(net::Listener::open(net::Address::loopback(), self.tls, self.key, options).value());
    address.rank = rank;
    address.tcp = listeners.front().address();
    EXPECT_TRUE(control->start(std::move(listeners)).ok());
  }

  Log log{LogLevel::kOff};
  Self self;
  std::unique_ptr<Control> control;
  PeerAddress address;
};

}  // namespace horo::group
