// What the launcher and the agent of a host say to each other, over the two ends of a pipe (of ssh, or a socket pair).
//
// A message is a length in 32 bits (of what follows the type), a type in 8 bits and the payload, little-endian. In
// front of the agent's first message stands a greeting, so that what a login shell prints before it can be told from
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run/life.h"
#include "cli/run/lines.h"

#include "horo/base/config.h"
#include "horo/base/status.h"

namespace horo::cli::launch {

/// Of the messages below. Both sides must have the same.
inline constexpr uint32_t kLaunchProtocol = 4;
inline constexpr std::string_view kGreeting("\0horo agent\n\0", 13);
inline constexpr size_t kMostMessage = 8 << 20;
inline constexpr size_t kMostOutput = 64 << 10;

enum class MessageType : uint8_t {
  kHello = 1,     ///< Agent: who it is. The first message.
  kStart = 2,     ///< Launcher: the ranks to start. Of an elastic job several may come.
  kOutput = 3,    ///< Agent: what a rank wrote.
  kExited = 4,    ///< Agent: a rank ended, or did not start.
  kEnd = 5,       ///< Launcher: end everything.
  kEnded = 6,     ///< Agent: nothing is left of the ranks and of what they started. The last message.
  kProblem = 7,   ///< Agent: something the user should know.
  kAlive = 8,     ///< Agent: now and then, so that a connection that leads nowhere breaks.
  kInput = 9,     ///< Launcher: more bytes of what every rank reads, before kStart.
  kEndRank = 10,  ///< Launcher: end one rank.
};

struct AgentHello {
  uint32_t protocol = kLaunchProtocol;
  std::string version;       ///< Of horo.
  uint16_t lowest_wire = 0;  ///< Wire versions between ranks.
  uint16_t highest_wire = 0;
  std::string host;       ///< As it calls itself.
  std::string connector;  ///< Where ssh says that the launcher's connection comes from and went to; may be empty.
  std::string acceptor;
};

struct RankOrder {
  int rank = 0;
  int slot = 0;                        ///< Of its host: which GPUs are its own.
  Environment::Variables environment;  ///< On top of StartOrder::environment.
  std::string output;  ///< Folder with stdout and stderr, for what it writes when the launcher is gone; may be empty.
};

struct StartOrder {
  std::array<std::byte, 32> key{};
  std::string folder;                  ///< Where the ranks are to run.
  std::vector<std::string> command;    ///< The program and its arguments.
  Environment::Variables environment;  ///< On top of the agent's; an empty value unsets.
  std::vector<RankOrder> ranks;
  Duration grace{};                     ///< What ranks have to end, when the launcher is gone.
  std::vector<std::string> interfaces;  ///< Names or addresses; the first that exists is used. Empty: by routing.
  std::vector<std::string> peers;       ///< Addresses of other hosts, for routing. Empty: all ranks are on this host.
  bool wants_results = false;           ///< Ranks get a descriptor to hand something back on.
  int gpus_per_rank = 0;                ///< 0: all ranks see what there is.
  bool share_gpus = false;              ///< Ranks may get one that another has.
  int slots = 1;                        ///< Of this host, among which its cores and GPUs are divided.
  bool elastic = false;                 ///< More ranks may come, and the launcher may go: the ranks go on.
  bool far = false;                     ///< The way here may break while the launcher lives.
  bool may_grow = false;                ///< Other hosts may come: loopback will not do.
};

struct Output {
  int rank = 0;
  Stream stream = Stream::kStdout;
  std::string_view bytes;  ///< Into the payload.
};

struct EndOrder {
  Duration grace{};
};

struct EndRankOrder {
  int rank = 0;
  Duration grace{};
};

std::vector<std::byte> encode(const AgentHello& hello);
std::vector<std::byte> encode(const StartOrder& order);
std::vector<std::byte> encode(const Output& output);
std::vector<std::byte> encode(const RankEnd& end);
std::vector<std::byte> encode(const EndOrder& order);
std::vector<std::byte> encode(const EndRankOrder& order);
std::vector<std::byte> encode_text(std::string_view words);

/// kCorrupt for anything that is not what encode() makes.
Result<AgentHello> decode_hello(std::span<const std::byte> payload);
Result<StartOrder> decode_start(std::span<const std::byte> payload);
Result<Output> decode_output(std::span<const std::byte> payload);
Result<RankEnd> decode_end_of_rank(std::span<const std::byte> payload);
Result<EndOrder> decode_end(std::span<const std::byte> payload);
Result<EndRankOrder> decode_end_one(std::span<const std::byte> payload);
Result<std::string> decode_text(std::span<const std::byte> payload);

}  // namespace horo::cli::launch
