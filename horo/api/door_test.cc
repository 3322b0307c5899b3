// Jobs that grow: their ranks and the newcomers are threads.
#include "horo/rendezvous/door.h"

#include <gtest/gtest.h>

#include <cstring>
#include <latch>

#include "horo/api/door.h"
#include "horo/api/rank_threads_testing.h"

namespace {

using horo::Deadline;
using horo::Error;
using horo::Runtime;
using horo::rendezvous::Door;

/// What rank 0 has found at the door, told to all in the old job.
struct Plan {
  char generation[32] = {};
  int newcomers = 0;
};

class OpenDoor {
 public:
  explicit OpenDoor(const Runtime& runtime) { horo::check(horo_door_open(runtime.get(), &door_)); }
  ~OpenDoor() { horo_door_close(door_); }
  OpenDoor(const OpenDoor&) = delete;
  OpenDoor& operator=(const OpenDoor&) = delete;

  horo_door* get() const { return door_; }
  int wait_for_newcomers(int count) {
    horo_changes changes = HORO_CHANGES_INIT;
    while (static_cast<int>(changes.newcomer_count) < count) {
      EXPECT_EQ(horo_door_news(door_, 20), 1);
      horo::check(horo_door_look(door_, &changes));
    }
    return static_cast<int>(changes.newcomer_count);
  }

 private:
  horo_door* door_ = nullptr;
};

/// The larger job; throws when it does not come about.
std::unique_ptr<Runtime> grow(const Runtime& old, horo_engine_options engine, const Plan& plan) {
  engine.rank = old.rank();
  engine.size = old.size() + plan.newcomers;
  engine.generation = plan.generation;
  horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
  options.engine = &engine;
  options.predecessor = old.get();
  return std::make_unique<Runtime>(options);
}

float sum_of_ones(Runtime& runtime) {
  float value = 1;
  runtime.allreduce("sum", &value, 1);
  return value;
}

/// A process that comes later.
class Later {
 public:
  Later(const horo_engine_options& like, int seat) : like_(like), seat_("HORO_SEAT=" + std::to_string(seat)) {
    for (const char* const* one = like.settings; *one != nullptr; ++one) words_.push_back(*one);
    words_.push_back(seat_.c_str());
  }
  void add(const char* setting) { words_.push_back(setting); }
  std::unique_ptr<Runtime> enter() {
    words_.push_back(nullptr);
    horo_engine_options engine = like_;
    engine.rank = engine.size = -1;
    engine.settings = words_.data();
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    return std::make_unique<Runtime>(options);
  }

 private:
  horo_engine_options like_;
  std::string seat_;
  std::vector<const char*> words_;
};

TEST(ApiDoor, ANewcomerWaitsUntilTheJobTakesItIn) {
  Plan plan;
  std::latch planned(2);
  horo::api::run_threads(3, [&](horo_engine_options engine) {
    if (engine.rank == 2) {
      Later later(engine, 7);
      const auto runtime = later.enter();
      EXPECT_EQ(runtime->rank(), 2);
      EXPECT_EQ(runtime->size(), 3);
      EXPECT_EQ(sum_of_ones(*runtime), 3.0F);
      runtime->barrier();
      return;
    }
    engine.size = 2;
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    auto runtime = std::make_unique<Runtime>(options);
    EXPECT_EQ(sum_of_ones(*runtime), 2.0F);
    std::unique_ptr<Runtime> next;
    if (engine.rank == 0) {
      OpenDoor door(*runtime);
      plan.newcomers = door.wait_for_newcomers(1);
      EXPECT_EQ(plan.newcomers, 1);
      horo_changes changes = HORO_CHANGES_INIT;
      horo::check(horo_door_look(door.get(), &changes));
      EXPECT_EQ(changes.newcomers[0], 7);
      horo::check(horo_door_begin(door.get(), plan.generation));
      planned.arrive_and_wait();
      horo::check(horo_door_admit(door.get(), plan.generation, 3, 1));
      next = grow(*runtime, engine, plan);
    } else {
      planned.arrive_and_wait();
      next = grow(*runtime, engine, plan);
    }
    EXPECT_EQ(next->rank(), engine.rank);
    EXPECT_EQ(sum_of_ones(*next), 3.0F);
    runtime.reset();
    next->barrier();
  });
}

TEST(ApiDoor, AJobWhoseNewcomerEndsGoesOnAndTakesItInLater) {
  Plan plans[2];
  std::latch planned(2), planned_again(2);
  std::string why[2];
  horo::api::run_threads(2, [&](horo_engine_options engine) {
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    Runtime runtime(options);
    std::thread later;
    std::unique_ptr<OpenDoor> door;
    if (engine.rank == 0) {
      // Somebody knocks and ends.
      auto none = std::make_shared<const horo::net::Key>(*horo::net::Key::none());
      const horo::rendezvous::TcpStoreOptions at{"api-test", none, nullptr};
      auto store =
          horo::rendezvous::TcpStore::connect(*horo::net::resolve(engine.store), at, Deadline::after_seconds(5));
      ASSERT_TRUE(store.ok()) << store.status();
      Door outside(**store, "api-test");
      ASSERT_TRUE(outside.knock({5, 1}, Deadline::after_seconds(5)).ok());
      door = std::make_unique<OpenDoor>(runtime);
      plans[0].newcomers = door->wait_for_newcomers(1);
      horo::check(horo_door_begin(door->get(), plans[0].generation));
      planned.arrive_and_wait();
      horo::check(horo_door_admit(door->get(), plans[0].generation, 3, 1));
      outside.newcomer_ended(5, Deadline::after_seconds(5));
    } else {
      planned.arrive_and_wait();
    }
    try {
      grow(runtime, engine, plans[0]);
    } catch (const Error& error) {
      why[engine.rank] = error.what();
    }
    EXPECT_NE(why[engine.rank].find("seat 5 ended before"), std::string::npos) << why[engine.rank];
    EXPECT_EQ(sum_of_ones(runtime), 2.0F);
    if (engine.rank == 0) {
      later = std::thread([engine] {
        const auto joined = Later(engine, 6).enter();
        EXPECT_EQ(joined->rank(), 2);
        EXPECT_EQ(sum_of_ones(*joined), 3.0F);
        joined->barrier();
      });
      plans[1].newcomers = door->wait_for_newcomers(1);
      horo::check(horo_door_begin(door->get(), plans[1].generation));
      planned_again.arrive_and_wait();
      horo::check(horo_door_admit(door->get(), plans[1].generation, 3, 1));
    } else {
      planned_again.arrive_and_wait();
    }
    const auto next = grow(runtime, engine, plans[1]);
    EXPECT_EQ(sum_of_ones(*next), 3.0F);
    next->barrier();
    if (later.joinable()) later.join();
  });
}

TEST(ApiDoor, AJobThatCannotAdmitGoesOnAtOnceOnAllItsRanks) {
  Plan plan;
  plan.newcomers = 1;
  std::latch planned(2);
  horo::api::run_threads(2, [&](horo_engine_options engine) {
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    Runtime runtime(options);
    std::unique_ptr<OpenDoor> door;
    if (engine.rank == 0) {
      door = std::make_unique<OpenDoor>(runtime);
      horo::check(horo_door_begin(door->get(), plan.generation));
    }
    planned.arrive_and_wait();
    if (engine.rank == 0) {
      EXPECT_THROW(horo::check(horo_door_admit(door->get(), plan.generation, 3, 1)), Error);
    }
    try {
      grow(runtime, engine, plan);
      ADD_FAILURE() << "nobody has come";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("1 of 0 newcomers cannot enter"), std::string::npos) << error.what();
    }
    EXPECT_EQ(sum_of_ones(runtime), 2.0F);
  });
}

TEST(ApiDoor, NobodyWaitsForEverAtTheDoor) {
  horo::api::run_threads(1, [](const horo_engine_options& engine) {
    Later later(engine, 3);
    later.add("HORO_ELASTIC_TIMEOUT=1");
    try {
      later.enter();
      ADD_FAILURE() << "nobody is there to take it in";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("did not take in seat 3"), std::string::npos) << error.what();
    }
  });
}

TEST(ApiDoor, AGenerationEndsWhenTheJobLosesARankMeanwhile) {
  Plan plan;
  std::strcpy(plan.generation, "1");
  plan.newcomers = 1;
  std::latch begun(2);
  horo::api::run_threads(2, [&](const horo_engine_options& engine) {
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    auto runtime = std::make_unique<Runtime>(options);
    runtime->barrier();
    begun.arrive_and_wait();
    if (engine.rank == 1) return runtime.reset();
    try {
      grow(*runtime, engine, plan);
      ADD_FAILURE() << "a job of three with one";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("lost a rank meanwhile"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
