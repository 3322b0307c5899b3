#include "horo/net/system_error.h"

#include <cerrno>
#include <system_error>

#include "horo/base/text.h"

namespace horo::net {
namespace {

Code code_of(int error) {
  switch (error) {
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
      return Code::kPeerLost;
    case EINVAL:
    case EBADF:
    case EAFNOSUPPORT:
    case EADDRNOTAVAIL:
    case ENAMETOOLONG:
      return Code::kInvalidArgument;
    case ENOENT:
      return Code::kNotFound;
    default:  // ETIMEDOUT among them: the kernel gave up what nobody acknowledged, and the peer may live.
      return Code::kUnavailable;
  }
}

std::string_view advice(int error) {
  switch (error) {
    case EMFILE:
      return "; this process has no free descriptors, raise its limit (ulimit -n)";
    case ENFILE:
      return "; the whole system has no free descriptors, raise fs.file-max";
    case EADDRINUSE:
      return "; another process holds this address, choose another port or name";
    case EADDRNOTAVAIL:
      return "; no interface of this host has this address";
    case EACCES:
    case EPERM:
      return "; this process may not do that here";
    default:
      return "";
  }
}

}  // namespace

Status system_error(std::string_view what, int error) {
  return {code_of(error),
          text(what, ": ", std::generic_category().message(error), " (errno ", error, ")", advice(error))};
}

}  // namespace horo::net
