// The two levels of a group that spans hosts, as one member sees them: the members of its host, and the lanes between
// hosts. Pure: equal on all members where it does not speak of this one.
//
// There are as many *lanes* as the smallest host has members; the members with the lane's index on every host *drive*
// it. Data that crosses hosts is cut over the lanes, so all members of equal hosts use the network, and the first ones
// where hosts differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/collective/cut.h"
#include "horo/collective/operation.h"

namespace horo::group {

struct Levels {
  Levels(collective::Shape of, int member);

  collective::Shape shape;
  int member = 0;
  size_t host = 0;         ///< Of this member, among shape.hosts().
  std::vector<int> local;  ///< Members of this host.
  int place = 0;           ///< Of this member, in `local`.
  int lanes = 1;

  size_t hosts() const { return shape.hosts().size(); }
  bool drives() const { return place < lanes; }
  int driver(size_t of_host, int lane) const { return shape.hosts()[of_host][static_cast<size_t>(lane)]; }
  /// Where a member lies on its host.
  int place_of(int of) const;
  /// The lane in which the blocks of member `of` cross.
  int lane_of(int of) const { return place_of(of) % lanes; }
  /// Lanes that share `bytes`: a small message is not worth cutting.
  int lanes_for(uint64_t bytes) const;

  /// Whether the members of every host follow each other in the group, so that their blocks are one run.
  bool hosts_are_runs() const;
};

/// Where a block of an allgather, gather or scatter lies on a host after it has crossed: in the slot of the lane's
/// driver there, one after the other.
struct Crossing {
  int member = 0;  ///< Whose block.
  int lane = 0;
  uint64_t offset = 0;  ///< Bytes, in the driver's slot.
  uint64_t bytes = 0;
};

/// The blocks that cross to host `to`, in the order in which each lane sends them: those of the members of other hosts
/// (allgather, gather; the driver's own block lies in front of them), or those of `to` itself (scatter).
enum class Blocks : uint8_t { kOfOthers, kOfItsOwn };
std::vector<Crossing> crossings(const Levels& levels, const collective::Operation& operation, size_t to, Blocks which);

/// Why an operation cannot run in two levels; empty when it can. Never depends on the number of elements, so that the
/// order of a sum does not either.
std::string two_level_refusal(const Levels& levels, const collective::Operation& operation);

/// Bytes that an operation keeps in the slot of the member that keeps most.
uint64_t slot_bytes(const Levels& levels, const collective::Operation& operation);

/// The elements of a reducescatter that belong to the members of a host, which is a run.
collective::Run run_of_host(const Levels& levels, const collective::Operation& operation, size_t host);

}  // namespace horo::group
