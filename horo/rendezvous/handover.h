// The job's key and the address of its store, handed from one rank to the others of its host through a file that only
// this user can read. For launchers that hand over no key: torchrun, srun, mpiexec.
//
//   rank 0   HORO_ASSIGN(Handover letter, Handover::leave(folder, run, key, "127.0.0.1:4711"));
//   others   HORO_ASSIGN(HandedOver got, await_handover(folder, run, deadline));
//
// The folder belongs to this user alone (0700, no link); the file is 0600, appears with all its contents at once, and
// is locked for as long as whoever wrote it lives: a file without that lock is left over from a run that died, and is
// never believed.
#pragma once

#include <string>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/net/fd.h"
#include "horo/net/key.h"

namespace horo::rendezvous {

class Handover {
 public:
  /// Replaces what an earlier run of the same name has left there. kUnauthenticated when the folder is not this user's
  /// alone.
  static Result<Handover> leave(const std::string& folder, const std::string& run, const net::Key& key,
                                const std::string& store);
  Handover(Handover&&) noexcept = default;
  Handover& operator=(Handover&&) = delete;
  /// Takes the file away, once everybody has read it.
  ~Handover();

 private:
  Handover(net::UniqueFd folder, net::UniqueFd file, std::string name)
      : folder_(std::move(folder)), file_(std::move(file)), name_(std::move(name)) {}

  net::UniqueFd folder_;
  net::UniqueFd file_;  ///< Its lock is the sign of life.
  std::string name_;
};

struct HandedOver {
  net::Key key;
  std::string store;
};

/// Waits until the file is there and its writer lives. kUnauthenticated for a folder or file that others could have
/// written.
Result<HandedOver> await_handover(const std::string& folder, const std::string& run, Deadline deadline);

/// Where this user's files of that kind are: "horo-1000" below TMPDIR or /tmp.
std::string handover_folder(const std::string& temporary);

}  // namespace horo::rendezvous
