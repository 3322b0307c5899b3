#include "horo/transport/inproc/mesh.h"
#include "horo/transport/mesh_conformance_test.h"

namespace horo::transport {
namespace {

struct InprocWires {
  explicit InprocWires(int size) : fabric(size) {}
  Mesh& mesh(int rank) { return fabric.mesh(rank); }
  void end(int rank) { fabric.drop(rank); }
  InprocFabric fabric;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Inproc, MeshConformance, ::testing::Types<InprocWires>);

}  // namespace
}  // namespace horo::transport
