#include "horo/group/fabric_plane.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <functional>
#include <thread>

namespace horo::group {
namespace {

using collective::Kind;
using collective::Operation;

constexpr int kMembers = 3;

/// A fabric of threads, which believes whatever it is told.
struct Meeting {
  std::barrier<> together{kMembers};
  const std::byte* inputs[kMembers] = {};
  int runs[kMembers] = {};
};

class ThreadGroup : public FabricGroup {
 public:
  ThreadGroup(Meeting& meeting, int member) : meeting_(meeting), member_(member) {}

  Status run(const Operation& operation, const std::byte* in, std::byte* out) override {
    ++meeting_.runs[member_];
    const bool reduces = operation.kind == Kind::kAllreduce;
    const uint64_t bytes = (reduces ? operation.count : operation.counts[0]) * size_of(operation.dtype);
    const std::vector<std::byte> mine(in, in + bytes);
    meeting_.inputs[member_] = mine.data();
    meeting_.together.arrive_and_wait();
    for (int member = 0; member < kMembers; ++member) {
      const std::byte* from = meeting_.inputs[member];
      if (!reduces) {
        std::memcpy(out + static_cast<size_t>(member) * bytes, from, bytes);
      } else if (operation.dtype == DType::kU64) {
        for (uint64_t at = 0; at < bytes; at += 8) least(out + at, from + at, member == 0);
      }
    }
    meeting_.together.arrive_and_wait();
    return {};
  }

 private:
  static void least(std::byte* out, const std::byte* in, bool first) {
    uint64_t a = 0, b = 0;
    std::memcpy(&a, out, 8);
    std::memcpy(&b, in, 8);
    if (first || b < a) std::memcpy(out, &b, 8);
  }

  Meeting& meeting_;
  const int member_;
};

/// What all members get who run `call(member)` at the same time.
std::vector<Status> outcomes(Meeting& meeting, const std::function<Operation(int)>& call) {
  std::vector<Status> all(kMembers);
  std::vector<std::thread> members;
  for (int member = 0; member < kMembers; ++member) {
    members.emplace_back([&, member] {
      FabricPlane plane("test", std::make_unique<ThreadGroup>(meeting, member), {2, 5, 7}, member);
      std::vector<std::byte> in(64), out(64);
      const Operation operation = call(member);
      all[static_cast<size_t>(member)] = plane.run({4, operation, in.data(), out.data(), Deadline::never()});
    });
  }
  for (std::thread& member : members) member.join();
  return all;
}

Operation sum_of(uint64_t count) {
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.dtype = DType::kF32;
  operation.count = count;
  return operation;
}

TEST(FabricPlane, RunsWhatAllMembersCall) {
  Meeting meeting;
  for (const Status& status : outcomes(meeting, [](int) { return sum_of(4); })) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(meeting.runs[0], 2) << "to agree, and to run";
}

TEST(FabricPlane, ABarrierIsTheAgreementItself) {
  Meeting meeting;
  for (const Status& status : outcomes(meeting, [](int) { return Operation(); })) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(meeting.runs[0], 1);
}

TEST(FabricPlane, CallsThatDifferFailOnAllMembersAndNameBoth) {
  const auto different = [](int member) {
    Operation operation = sum_of(4);
    if (member == 1) operation.count = 5;
    return operation;
  };
  Meeting meeting;
  for (const Status& status : outcomes(meeting, different)) {
    EXPECT_EQ(status.code(), Code::kMismatch) << status;
    EXPECT_NE(
        status.message().find("operation 4: rank 2 calls allreduce of 4 f32, sum, rank 5 allreduce of 5 f32, sum;"),
        std::string::npos)
        << status;
  }
  EXPECT_EQ(meeting.runs[0], 2) << "nobody has begun";
}

TEST(FabricPlane, AnAlltoallThatIsTooMuchForOneMemberBeginsOnNone) {
  Meeting meeting;
  const auto to_the_second = [](int member) {
    const uint64_t much = uint64_t{1} << 30;
    Operation operation;
    operation.kind = Kind::kAlltoall;
    operation.dtype = DType::kU8;
    operation.counts = {0, much, 0};
    operation.receive_counts = member == 1 ? std::vector<uint64_t>(kMembers, much) : std::vector<uint64_t>(kMembers);
    return operation;
  };
  for (const Status& status : outcomes(meeting, to_the_second)) {
    EXPECT_EQ(status.code(), Code::kUnavailable) << status;
    EXPECT_NE(status.message().find("rank 5 has"), std::string::npos) << status;
  }
  EXPECT_EQ(meeting.runs[0], 2) << "nobody has begun";
}

TEST(FabricPlane, AnAlltoallThatIsTooMuchForAllMembersBeginsOnNone) {
  Meeting meeting;
  const auto to_all = [](int) {
    Operation operation;
    operation.kind = Kind::kAlltoall;
    operation.dtype = DType::kU8;
    operation.counts = operation.receive_counts = std::vector<uint64_t>(kMembers, uint64_t{1} << 30);
    return operation;
  };
  for (const Status& status : outcomes(meeting, to_all)) EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_EQ(meeting.runs[0], 1) << "to agree";
}

TEST(FabricPlane, FactorsBelongToTheCall) {
  const auto different = [](int member) {
    Operation operation = sum_of(4);
    operation.postscale = member == 2 ? 0.5 : 1.0;
    return operation;
  };
  Meeting meeting;
  for (const Status& status : outcomes(meeting, different)) {
    EXPECT_EQ(status.code(), Code::kMismatch) << status;
    EXPECT_NE(status.message().find("rank 7 allreduce of 4 f32, sum with other counts or factors"), std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace horo::group
