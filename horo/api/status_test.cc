#include <gtest/gtest.h>

#include <set>
#include <string>

#include "horo/api/handles.h"
#include "horo/api/horo.hpp"

namespace {

using horo::Code;
using horo::Status;

TEST(ApiStatus, NullIsSuccess) {
  EXPECT_EQ(horo_status_code(nullptr), HORO_OK);
  EXPECT_STREQ(horo_status_message(nullptr), "ok");
  EXPECT_EQ(horo_status_lost(nullptr, nullptr, 0), 0u);
  EXPECT_EQ(horo_status_operation(nullptr), 0u);
  EXPECT_EQ(horo_status_contents_intact(nullptr), 1);
  horo_status_free(nullptr);
  EXPECT_NO_THROW(horo::check(nullptr));
}

TEST(ApiStatus, TellsEverythingTheOutcomeCarries) {
  horo_status* status = horo::api::to_handle(
      Status(Code::kPeerLost, "ranks 2 and 5 are gone").with_lost({2, 5}).with_operation(7).with_contents_lost());
  EXPECT_EQ(horo_status_code(status), HORO_PEER_LOST);
  EXPECT_NE(std::string(horo_status_message(status)).find("peer-lost: ranks 2 and 5 are gone"), std::string::npos);
  EXPECT_EQ(horo_status_operation(status), 7u);
  EXPECT_EQ(horo_status_contents_intact(status), 0);
  horo_status_free(status);
}

TEST(ApiStatus, LostRanksNeverRunOverTheCallersArray) {
  horo_status* status = horo::api::to_handle(Status(Code::kPeerLost, "").with_lost({1, 3, 4}));
  int ranks[] = {-1, -1, -1, -1};
  EXPECT_EQ(horo_status_lost(status, ranks, 2), 3u);
  EXPECT_EQ(ranks[1], 3);
  EXPECT_EQ(ranks[2], -1);
  EXPECT_EQ(horo_status_lost(status, ranks, 4), 3u);
  EXPECT_EQ(ranks[2], 4);
  EXPECT_EQ(ranks[3], -1);
  EXPECT_EQ(horo_status_lost(status, nullptr, 0), 3u);
  horo_status_free(status);
}

TEST(ApiStatus, IsThrownAsAnErrorThatCarriesTheSame) {
  horo_status* status =
      horo::api::to_handle(Status(Code::kPeerLost, "rank 1 is gone").with_lost({1}).with_operation(3));
  const std::string message = horo_status_message(status);
  try {
    horo::check(status);
    FAIL() << "nothing was thrown";
  } catch (const horo::Error& error) {
    EXPECT_EQ(error.code(), HORO_PEER_LOST);
    EXPECT_EQ(error.lost(), std::vector<int>{1});
    EXPECT_EQ(error.operation(), 3u);
    EXPECT_TRUE(error.contents_intact());
    EXPECT_EQ(error.what(), message);
  }
}

TEST(ApiStatus, EveryCodeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int code = HORO_OK; code <= HORO_INTERNAL; ++code) names.insert(horo_code_name(static_cast<horo_code>(code)));
  EXPECT_EQ(names.size(), static_cast<size_t>(HORO_INTERNAL) + 1);
  EXPECT_TRUE(names.contains("peer-lost"));
  EXPECT_TRUE(names.contains("mismatch"));
  EXPECT_STREQ(horo_code_name(static_cast<horo_code>(HORO_PEER_LOST + 256)), "unknown");
}

TEST(ApiStatus, TheVersionIsTheHeaders) {
  const std::string version = horo_version();
  EXPECT_NE(version.find(HORO_VERSION_TEXT), std::string::npos) << version;
  EXPECT_EQ(std::to_string(HORO_VERSION_MAJOR) + "." + std::to_string(HORO_VERSION_MINOR) + "." +
                std::to_string(HORO_VERSION_PATCH),
            HORO_VERSION_TEXT);
}

TEST(ApiElements, SizesAndTypesOfElementsFitTogether) {
  EXPECT_EQ(horo_dtype_size(HORO_F16), 2u);
  EXPECT_EQ(horo_dtype_size(HORO_F32), sizeof(float));
  EXPECT_EQ(horo_dtype_size(HORO_C128), 16u);
  EXPECT_EQ(horo_dtype_size(HORO_F8E4M3), 1u);
  EXPECT_EQ(horo_dtype_size(static_cast<horo_dtype>(HORO_F32 + 256)), 0u);
  EXPECT_EQ(horo::dtype_of<float>(), HORO_F32);
  EXPECT_EQ(horo::dtype_of<double>(), HORO_F64);
  EXPECT_EQ(horo::dtype_of<bool>(), HORO_BOOL);
  EXPECT_EQ(horo::dtype_of<std::byte>(), HORO_BYTE);
  EXPECT_EQ(horo::dtype_of<int8_t>(), HORO_I8);
  EXPECT_EQ(horo::dtype_of<uint16_t>(), HORO_U16);
  EXPECT_EQ(horo::dtype_of<int32_t>(), HORO_I32);
  EXPECT_EQ(horo::dtype_of<uint64_t>(), HORO_U64);
  EXPECT_EQ(horo::dtype_of<long>(), HORO_I64);
}

TEST(ApiKnobs, AreListedAsTextAndAsMarkdown) {
  const std::string help = horo_knobs_help(), markdown = horo_knobs_markdown();
  for (const char* name : {"HORO_RANK", "HORO_STORE", "HORO_STAGING", "HORO_FREEZE_TIMEOUT"}) {
    EXPECT_NE(help.find(name), std::string::npos) << name;
    EXPECT_NE(markdown.find(name), std::string::npos) << name;
  }
  EXPECT_NE(markdown.find("|---"), std::string::npos);
  EXPECT_EQ(horo_knobs_help(), horo_knobs_help()) << "the text lives as long as the program";
}

}  // namespace
