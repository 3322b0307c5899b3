#include "horo/net/system_error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace horo::net {
namespace {

// Who gets kPeerLost counts the peer as dead, and who gets kTimeout asks again.
TEST(SystemError, OnlyWhatThePeersKernelSaysIsALostPeer) {
  for (int error : {ECONNRESET, ECONNABORTED, EPIPE}) EXPECT_EQ(system_error("x", error).code(), Code::kPeerLost);
  for (int error : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENETDOWN}) {
    EXPECT_EQ(system_error("x", error).code(), Code::kUnavailable);
  }
}

}  // namespace
}  // namespace horo::net
