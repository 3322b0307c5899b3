// Meshes of this folder, connected within one process, for its tests.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "horo/net/socket.h"
#include "horo/transport/tcp/mesh.h"

namespace horo::transport::tcp {

using Sockets = std::vector<Wire>;

/// Keys of both ends of a stream.
inline std::pair<net::StreamKeys, net::StreamKeys> paired_keys(net::Protection protection) {
  net::Key there = net::Key::random().value(), back = net::Key::random().value();
  net::Key there_too = there.copy().value(), back_too = back.copy().value();
  return {net::StreamKeys{protection, std::move(there), std::move(back)},
          net::StreamKeys{protection, std::move(back_too), std::move(there_too)}};
}

inline std::pair<net::Socket, net::Socket> connected_pair(bool tcp, const net::SocketOptions& options = {}) {
  if (!tcp) return net::Socket::pair().value();
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  net::ListenSocket listener = net::ListenSocket::listen(net::Address::loopback(), {1, options}).value();
  net::Socket connected = net::Socket::connect(listener.address(), deadline, options).value();
  HORO_CHECK(net::wait_ready(listener.fd(), net::Interest::kRead, deadline, "accepting").ok(), "nobody connected");
  net::Socket accepted = std::move(listener.accept().value().value());
  HORO_CHECK(accepted.set_options(options).ok(), "socket options");
  return {std::move(connected), std::move(accepted)};
}

struct WiresOptions {
  bool tcp = false;
  size_t streams = 1;
  net::SocketOptions socket;
  net::Protection protection = net::Protection::kChecksum;
  MeshOptions mesh;
};

/// The meshes of all ranks of a group.
inline std::vector<std::unique_ptr<Mesh>> connected_meshes(int size, const WiresOptions& options) {
  const auto count = static_cast<size_t>(size);
  std::vector<std::vector<Sockets>> sockets(count);
  for (auto& row : sockets) row.resize(count);
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = a + 1; b < count; ++b) {
      for (size_t i = 0; i < options.streams; ++i) {
        auto [here, there] = connected_pair(options.tcp, options.socket);
        if (options.protection == net::Protection::kChecksum) {
          sockets[a][b].push_back(std::move(here));
          sockets[b][a].push_back(std::move(there));
          continue;
        }
        auto [mine, theirs] = paired_keys(options.protection);
        sockets[a][b].push_back({std::move(here), std::move(mine)});
        sockets[b][a].push_back({std::move(there), std::move(theirs)});
      }
    }
  }
  std::vector<std::unique_ptr<Mesh>> meshes;
  for (int rank = 0; rank < size; ++rank) {
    const Seat seat{rank, size, 5, 9};
    meshes.push_back(Mesh::create(seat, std::move(sockets[static_cast<size_t>(rank)]), options.mesh).value());
  }
  return meshes;
}

}  // namespace horo::transport::tcp
