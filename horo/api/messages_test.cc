#include "horo/api/messages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "horo/api/rank_threads_testing.h"

namespace {

using horo::Engine;
using horo::Error;
using horo::Group;
using horo::Request;

Request send(Engine& engine, const Group& group, int to, uint64_t tag, const std::vector<int>& values,
             double timeout = 30) {
  horo_request* request = nullptr;
  horo::check(horo_message_send(engine.get(), group.get(), to, tag, values.data(), values.size() * sizeof(int), timeout,
                                nullptr, nullptr, &request));
  return Request(request);
}

Request receive(Engine& engine, const Group& group, int from, uint64_t tag, std::vector<int>& values,
                double timeout = 30) {
  horo_request* request = nullptr;
  horo::check(horo_message_receive(engine.get(), group.get(), from, tag, values.data(), values.size() * sizeof(int),
                                   timeout, nullptr, nullptr, &request));
  return Request(request);
}

horo_code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return HORO_OK;
}

/// Over shared memory, and over sockets.
class ApiMessages : public testing::TestWithParam<const char*> {
 protected:
  void run(int ranks, const std::function<void(Engine&)>& body) {
    const auto open = [&](Engine& engine) {
      horo::check(horo_messages_open(engine.get()));
      body(engine);
    };
    horo::api::run_ranks(ranks, open, {std::string("HORO_TRANSPORT=") + GetParam()});
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, ApiMessages, testing::Values("auto", "tcp"),
                         [](const auto& one) { return std::string(one.param == std::string("tcp") ? "Tcp" : "Shm"); });

TEST_P(ApiMessages, CrossInBothDirectionsWhateverTheirSize) {
  run(2, [](Engine& engine) {
    Group world = engine.world();
    const int peer = 1 - engine.rank();
    for (const size_t count : {size_t{0}, size_t{1}, size_t{8192}, size_t{8193}, size_t{3} << 20}) {
      std::vector<int> out(count, engine.rank() + 1), in(count);
      // Both send first: whoever buffered nothing and waited would wait for ever.
      Request sent = send(engine, world, peer, 0, out);
      Request got = receive(engine, world, peer, 0, in);
      sent.wait();
      got.wait();
      EXPECT_EQ(in, std::vector<int>(count, peer + 1));
    }
    world.barrier();
  });
}

TEST_P(ApiMessages, DoNotWaitForCollectivesNorTheOtherWayRound) {
  run(2, [](Engine& engine) {
    Group world = engine.world();
    float value = 1;
    std::vector<int> word(100000, 7), got(100000);
    if (engine.rank() == 0) {
      Request sum = world.allreduce_async(&value, 1);
      Request sent = send(engine, world, 1, 3, word);
      sum.wait();
      sent.wait();
    } else {
      receive(engine, world, 0, 3, got).wait();
      EXPECT_EQ(got, word);
      world.allreduce(&value, 1);
    }
    EXPECT_EQ(value, 2.0F);
  });
}

TEST_P(ApiMessages, FindTheirTagsOutOfOrderAndTellWhoSentThem) {
  run(3, [](Engine& engine) {
    Group world = engine.world();
    constexpr int kTags = 20;
    std::vector<std::vector<int>> memory;
    if (engine.rank() > 0) {
      std::vector<Request> sent;
      for (int tag = 0; tag < kTags; ++tag) {
        memory.push_back(std::vector<int>(static_cast<size_t>(1 + tag * 1000), engine.rank() * 100 + tag));
        sent.push_back(send(engine, world, 0, static_cast<uint64_t>(tag), memory.back()));
      }
      for (Request& one : sent) one.wait();
    } else {
      for (int tag = kTags; tag-- > 0;) {
        std::vector<int> first(static_cast<size_t>(1 + tag * 1000)), second(first.size());
        horo_request* handle = nullptr;
        horo::check(horo_message_receive(engine.get(), world.get(), -1, static_cast<uint64_t>(tag), first.data(),
                                         first.size() * sizeof(int), 30, nullptr, nullptr, &handle));
        horo::check(horo_request_wait(handle, -1));
        const int source = horo_request_source(handle);
        horo_request_destroy(handle);
        EXPECT_EQ(first.back(), source * 100 + tag);
        receive(engine, world, 3 - source, static_cast<uint64_t>(tag), second).wait();
        EXPECT_EQ(second.back(), (3 - source) * 100 + tag);
      }
    }
    world.barrier();
  });
}

TEST_P(ApiMessages, OfAGroupUseItsOwnRanksAndTags) {
  run(3, [](Engine& engine) {
    Group world = engine.world();
    if (engine.rank() != 1) {
      Group pair = engine.group({0, 2});
      std::vector<int> in_world{1}, in_pair{2}, got(1);
      if (pair.rank() == 0) {
        send(engine, world, 2, 5, in_world).wait();
        send(engine, pair, 1, 5, in_pair).wait();
      } else {
        receive(engine, pair, 0, 5, got).wait();
        EXPECT_EQ(got, in_pair);
        receive(engine, world, 0, 5, got).wait();
        EXPECT_EQ(got, in_world);
      }
      EXPECT_EQ(code_of([&] { send(engine, pair, 2, 0, in_pair); }), HORO_INVALID_ARGUMENT);
    }
    world.barrier();
  });
}

TEST_P(ApiMessages, EndAtTheirTimeLimit) {
  run(2, [](Engine& engine) {
    Group world = engine.world();
    std::vector<int> large(100000), got(1);
    if (engine.rank() == 0) {
      EXPECT_EQ(code_of([&] { send(engine, world, 1, 0, large, 0.05).wait(); }), HORO_TIMEOUT);
      EXPECT_EQ(code_of([&] { receive(engine, world, 1, 0, got, 0.05).wait(); }), HORO_TIMEOUT);
    }
    world.barrier();
    // And what came too late for one is not given to the next.
    if (engine.rank() == 1) {
      EXPECT_EQ(code_of([&] { receive(engine, world, 0, 0, large, 0.05).wait(); }), HORO_TIMEOUT);
    }
    world.barrier();
  });
}

TEST_P(ApiMessages, WithARankThatHasLeftFailAndOthersGoOn) {
  run(3, [](Engine& engine) {
    Group world = engine.world();
    std::vector<int> last{42}, got(1);
    if (engine.rank() == 0) {
      send(engine, world, 1, 1, last).wait();
      return;  // It leaves.
    }
    if (engine.rank() == 1) {
      EXPECT_EQ(code_of([&] { receive(engine, world, 0, 2, got).wait(); }), HORO_PEER_LOST);
      receive(engine, world, 0, 1, got).wait();
      EXPECT_EQ(got, last) << "what it sent before";
      EXPECT_EQ(code_of([&] { send(engine, world, 0, 1, last).wait(); }), HORO_PEER_LOST);
    }
    for (int round = 0; round < 20; ++round) {
      std::vector<int> out(50000, round), in(50000);
      Request sent = send(engine, world, 3 - engine.rank(), 9, out);
      receive(engine, world, 3 - engine.rank(), 9, in).wait();
      sent.wait();
      EXPECT_EQ(in, out);
    }
  });
}

TEST_P(ApiMessages, UnderWayAtTheShutdownSaySo) {
  run(2, [](Engine& engine) {
    Group world = engine.world();
    std::vector<int> got(1);
    world.barrier();
    if (engine.rank() == 0) {
      Request waits = receive(engine, world, 1, 1, got);
      engine.shutdown();
      EXPECT_EQ(code_of([&] { waits.wait(); }), HORO_STOPPED);
      EXPECT_EQ(code_of([&] { receive(engine, world, 1, 1, got); }), HORO_STOPPED);
    } else {
      EXPECT_EQ(code_of([&] { receive(engine, world, 0, 1, got).wait(); }), HORO_PEER_LOST);
    }
  });
}

TEST(ApiMessagesCalls, EndAtOnceHoweverSoonAfterTheFirst) {
  for (int i = 0; i < 300; ++i) {
    Engine engine;
    const Group world = engine.world();
    horo::check(horo_messages_open(engine.get()));
    std::vector<int> values(1);
    Request never = receive(engine, world, 0, 0, values);
    engine.shutdown();
    EXPECT_EQ(code_of([&] { never.wait(); }), HORO_STOPPED);
  }
}

TEST(ApiMessagesCalls, NeedAnEngineAGroupMemoryAndToBeOpened) {
  Engine engine;
  Group world = engine.world();
  std::vector<int> value(1);
  EXPECT_EQ(code_of([&] { send(engine, world, 0, 0, value); }), HORO_INVALID_ARGUMENT);
  horo::check(horo_messages_open(engine.get()));
  EXPECT_EQ(code_of([&] { horo::check(horo_messages_open(engine.get())); }), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { horo::check(horo_messages_open(nullptr)); }), HORO_INVALID_ARGUMENT);
  horo_request* request = nullptr;
  for (horo_status* status :
       {horo_message_send(nullptr, world.get(), 0, 0, value.data(), 4, 1, nullptr, nullptr, &request),
        horo_message_send(engine.get(), nullptr, 0, 0, value.data(), 4, 1, nullptr, nullptr, &request),
        horo_message_send(engine.get(), world.get(), 0, 0, nullptr, 4, 1, nullptr, nullptr, &request),
        horo_message_receive(nullptr, world.get(), 0, 0, value.data(), 4, 1, nullptr, nullptr, &request),
        horo_message_receive(engine.get(), world.get(), -2, 0, value.data(), 4, 1, nullptr, nullptr, &request)}) {
    EXPECT_EQ(horo_status_code(status), HORO_INVALID_ARGUMENT);
    horo_status_free(status);
  }
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(horo_request_source(nullptr), -1);
  // To itself.
  std::vector<int> got(1);
  value[0] = 5;
  Request sent = send(engine, world, 0, 4, value);
  receive(engine, world, 0, 4, got).wait();
  sent.wait();
  EXPECT_EQ(got, value);
}

}  // namespace
