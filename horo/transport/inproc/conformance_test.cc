#include "horo/transport/inproc/mesh.h"
#include "horo/transport/mesh_conformance_testing.h"

namespace horo::transport {
namespace {

class InprocWires : public Wires {
 public:
  explicit InprocWires(int size) : fabric_(size) {}
  Mesh& mesh(int rank) override { return fabric_.mesh(rank); }
  void end(int rank) override { fabric_.drop(rank); }

 private:
  InprocFabric fabric_;
};

INSTANTIATE_TEST_SUITE_P(Inproc, MeshConformance,
                         ::testing::Values(WiresMaker{"Inproc",
                                                      [](int size) { return std::make_unique<InprocWires>(size); }}));

}  // namespace
}  // namespace horo::transport
