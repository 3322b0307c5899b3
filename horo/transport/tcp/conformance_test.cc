#include "horo/transport/mesh_conformance_testing.h"
#include "horo/transport/tcp/wires_testing.h"

namespace horo::transport {
namespace {

using net::Protection;

class StreamWires : public Wires {
 public:
  StreamWires(int size, const tcp::WiresOptions& options) : meshes_(tcp::connected_meshes(size, options)) {}
  Mesh& mesh(int rank) override { return *meshes_[static_cast<size_t>(rank)]; }
  void end(int rank) override { meshes_[static_cast<size_t>(rank)].reset(); }

 private:
  std::vector<std::unique_ptr<tcp::Mesh>> meshes_;
};

struct Streams {
  bool tcp = true;
  size_t count = 1;
  size_t chunk = 256 << 10;
  bool checksum = true;
  int socket_buffer = 0;
  Protection protection = Protection::kChecksum;
};

WiresMaker wires(const char* name, const Streams& streams) {
  tcp::WiresOptions options;
  options.tcp = streams.tcp;
  options.streams = streams.count;
  options.socket.send_buffer = options.socket.receive_buffer = streams.socket_buffer;
  options.protection = streams.protection;
  options.mesh.chunk = streams.chunk;
  options.mesh.checksum = streams.checksum;
  return {name, [options](int size) { return std::make_unique<StreamWires>(size, options); }};
}

INSTANTIATE_TEST_SUITE_P(
    Streams, MeshConformance,
    ::testing::Values(wires("Unix", {.tcp = false}),
                      wires("UnixThreeStreamsSmallChunks", {.tcp = false, .count = 3, .chunk = 4096}), wires("Tcp", {}),
                      wires("TcpTwoStreamsSmallBuffers", {.count = 2, .chunk = 64 << 10, .socket_buffer = 16384}),
                      wires("TcpFourStreamsUnchecked", {.count = 4, .checksum = false}),
                      wires("TcpEncrypted", {.count = 2, .protection = Protection::kAesGcm}),
                      wires("UnixEncryptedSmallChunks",
                            {.tcp = false, .count = 3, .chunk = 4096, .protection = Protection::kChaChaPoly})),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace horo::transport
