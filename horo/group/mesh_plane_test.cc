// What a plane over messages keeps for members that a loss leaves without a result.
#include "horo/group/mesh_plane.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "horo/collective/selector.h"
#include "horo/transport/inproc/mesh.h"
#include "horo/transport/interrupted_testing.h"

namespace horo::group {
namespace {

const collective::Table kTable;

collective::Operation allreduce_of(uint64_t count) {
  collective::Operation operation;
  operation.kind = collective::Kind::kAllreduce;
  operation.dtype = DType::kF32;
  operation.count = count;
  return operation;
}

MeshPlane plane_on(transport::Mesh& mesh, const collective::Shape& shape,
                   transport::Interrupted::BeforeWait before_wait = {}) {
  return {std::make_unique<transport::Interrupted>(mesh, std::move(before_wait)), shape, kTable,
          [shape](const collective::Operation& operation) { return collective::select(operation, shape, kTable); }};
}

void run_members(int members, const std::function<void(int)>& member) {
  std::vector<std::thread> threads;
  for (int rank = 1; rank < members; ++rank) threads.emplace_back([&member, rank] { member(rank); });
  member(0);
  for (std::thread& thread : threads) thread.join();
}

// That an operation came to nothing proves only that somebody came to it: others may not have got the one before.
TEST(MeshPlane, RetainsTheLastResultUntilTwoOthersHaveSucceeded) {
  transport::InprocFabric fabric(3);
  const collective::Shape shape(std::vector<int>{0, 1, 2});
  run_members(3, [&](int rank) {
    MeshPlane plane = plane_on(fabric.mesh(rank), shape);
    std::vector<float> data(1000, 1.0F);
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const auto run = [&](uint64_t number, uint64_t count) {
      return plane.run({number, allreduce_of(count), bytes, bytes, Deadline::after_seconds(20)}).code();
    };
    EXPECT_EQ(run(1, 1000), Code::kOk);
    const collective::Operation in_vain = allreduce_of(10);
    const Status failed = rank == 0 ? plane.refuse({2, in_vain}, Status(Code::kUnavailable, "no memory"))
                                    : plane.run({2, in_vain, bytes, bytes, Deadline::after_seconds(20)});
    EXPECT_EQ(failed.code(), Code::kUnavailable) << failed;
    EXPECT_EQ(plane.retained(1).size(), 4000u);
    EXPECT_EQ(run(3, 20), Code::kOk);
    EXPECT_EQ(plane.retained(1).size(), 4000u);
    EXPECT_EQ(plane.retained(3).size(), 80u);
    EXPECT_EQ(run(4, 30), Code::kOk);
    EXPECT_EQ(plane.retained(1).size(), 0u);
    EXPECT_EQ(plane.retained(3).size(), 80u);
  });
}

// Sums out of place and in place, in several segments each.
TEST(MeshPlane, OfTwoMembersPutsInputsBackWheneverTheyAreCutOff) {
  constexpr uint64_t kCount = uint64_t{1} << 19;
  const collective::Shape shape(std::vector<int>{0, 1});
  for (int cut_at = 0; cut_at < 25; ++cut_at) {
    transport::InprocFabric fabric(2);
    run_members(2, [&](int rank) {
      MeshPlane plane = plane_on(fabric.mesh(rank), shape, [&](int wait) {
        if (rank == 0 && wait == cut_at) fabric.cut(0, 1);
      });
      const std::vector<float> given(kCount, static_cast<float>(rank + 1));
      const std::vector<float> sum(kCount, 3.0F);
      std::vector<float> out(kCount);
      for (uint64_t number = 1;; ++number) {
        const bool in_place = number % 2 == 0;
        std::vector<float> in = given;
        auto* const to = reinterpret_cast<std::byte*>(in_place ? in.data() : out.data());
        const Status status = plane.run({number, allreduce_of(kCount), reinterpret_cast<const std::byte*>(in.data()),
                                         to, Deadline::after_seconds(20)});
        EXPECT_EQ(plane.retained(number).size(), 0u) << "of two, nobody can be served";
        EXPECT_EQ(in == given, !status.ok() || !in_place) << "operation " << number << ", cut at " << cut_at;
        if (!status.ok()) return;
        EXPECT_EQ(in_place ? in : out, sum) << "operation " << number;
      }
    });
  }
}

}  // namespace
}  // namespace horo::group
