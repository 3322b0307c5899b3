// What a plane over messages keeps for members that a loss leaves without a result.
#include "horo/group/mesh_plane.h"

#include <gtest/gtest.h>

#include <thread>

#include "horo/collective/selector.h"
#include "horo/transport/inproc/mesh.h"

namespace horo::group {
namespace {

/// A mesh that belongs to somebody else.
class Borrowed final : public transport::Mesh {
 public:
  explicit Borrowed(transport::Mesh& mesh) : mesh_(mesh) {}
  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.size(); }
  std::string_view transport_name() const override { return mesh_.transport_name(); }
  void begin(uint64_t number, const transport::Signature& signature) override { mesh_.begin(number, signature); }
  void send(int peer, std::span<const std::byte> data) override { mesh_.send(peer, data); }
  void receive(int peer, size_t bytes, const transport::Placement& placement) override {
    mesh_.receive(peer, bytes, placement);
  }
  Status poke() override { return mesh_.poke(); }
  Status wait(Deadline deadline) override { return mesh_.wait(deadline); }
  Status refuse(uint64_t number, const Status& why) override { return mesh_.refuse(number, why); }
  void revoke() override { mesh_.revoke(); }

 private:
  transport::Mesh& mesh_;
};

// That an operation came to nothing proves only that somebody came to it: others may not have got the one before.
TEST(MeshPlane, RetainsTheLastResultUntilTwoOthersHaveSucceeded) {
  transport::InprocFabric fabric(2);
  const collective::Shape shape(std::vector<int>{0, 1});
  const collective::Table table;
  const auto member = [&](int rank) {
    MeshPlane plane(
        std::make_unique<Borrowed>(fabric.mesh(rank)), shape, table,
        [&](const collective::Operation& operation) { return collective::select(operation, shape, table); });
    std::vector<float> data(1000, 1.0F);
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const auto run = [&](uint64_t number, uint64_t count) {
      collective::Operation operation;
      operation.kind = collective::Kind::kAllreduce;
      operation.dtype = DType::kF32;
      operation.count = count;
      return plane.run({number, operation, bytes, bytes, Deadline::after_seconds(20)}).code();
    };
    EXPECT_EQ(run(1, 1000), Code::kOk);
    EXPECT_EQ(run(2, 10 + static_cast<uint64_t>(rank)), Code::kMismatch);
    EXPECT_EQ(plane.retained(1).size(), 4000u);
    EXPECT_EQ(run(3, 20), Code::kOk);
    EXPECT_EQ(plane.retained(1).size(), 4000u);
    EXPECT_EQ(plane.retained(3).size(), 80u);
    EXPECT_EQ(run(4, 30), Code::kOk);
    EXPECT_EQ(plane.retained(1).size(), 0u);
    EXPECT_EQ(plane.retained(3).size(), 80u);
  };
  std::thread other([&] { member(1); });
  member(0);
  other.join();
}

}  // namespace
}  // namespace horo::group
