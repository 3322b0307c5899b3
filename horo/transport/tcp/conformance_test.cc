#include "horo/transport/mesh_conformance_test.h"
#include "horo/transport/tcp/wires_testing.h"

namespace horo::transport {
namespace {

using net::Protection;

template <bool kTcp, size_t kStreams, size_t kChunk, bool kChecksum, int kSocketBuffer,
          Protection kProtection = Protection::kChecksum>
struct StreamWires {
  explicit StreamWires(int size) {
    tcp::WiresOptions options;
    options.tcp = kTcp;
    options.streams = kStreams;
    options.socket.send_buffer = options.socket.receive_buffer = kSocketBuffer;
    options.protection = kProtection;
    options.mesh.chunk = kChunk;
    options.mesh.checksum = kChecksum;
    meshes = tcp::connected_meshes(size, options);
  }
  Mesh& mesh(int rank) { return *meshes[static_cast<size_t>(rank)]; }
  void end(int rank) { meshes[static_cast<size_t>(rank)].reset(); }

  std::vector<std::unique_ptr<tcp::Mesh>> meshes;
};

using Unix = StreamWires<false, 1, 256 << 10, true, 0>;
using UnixThreeStreamsSmallChunks = StreamWires<false, 3, 4096, true, 0>;
using Tcp = StreamWires<true, 1, 256 << 10, true, 0>;
using TcpTwoStreamsSmallBuffers = StreamWires<true, 2, 64 << 10, true, 16384>;
using TcpUnchecked = StreamWires<true, 4, 256 << 10, false, 0>;

using TcpEncrypted = StreamWires<true, 2, 256 << 10, true, 0, Protection::kAesGcm>;
using UnixEncryptedSmallChunks = StreamWires<false, 3, 4096, true, 0, Protection::kChaChaPoly>;

INSTANTIATE_TYPED_TEST_SUITE_P(Unix, MeshConformance, ::testing::Types<Unix>);
INSTANTIATE_TYPED_TEST_SUITE_P(UnixThreeStreamsSmallChunks, MeshConformance,
                               ::testing::Types<UnixThreeStreamsSmallChunks>);
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, MeshConformance, ::testing::Types<Tcp>);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpTwoStreamsSmallBuffers, MeshConformance, ::testing::Types<TcpTwoStreamsSmallBuffers>);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpEncrypted, MeshConformance, ::testing::Types<TcpEncrypted>);
INSTANTIATE_TYPED_TEST_SUITE_P(UnixEncryptedSmallChunks, MeshConformance, ::testing::Types<UnixEncryptedSmallChunks>);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpFourStreamsUnchecked, MeshConformance, ::testing::Types<TcpUnchecked>);

}  // namespace
}  // namespace horo::transport
