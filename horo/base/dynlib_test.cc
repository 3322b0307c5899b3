#include "horo/base/dynlib.h"

#include <gtest/gtest.h>

namespace horo {
namespace {

constexpr char kMath[] = "libm.so.6";

TEST(DynamicLibrary, OpensTheFirstNameThatExists) {
  const std::string kNames[] = {"libhoro_does_not_exist.so.7", kMath};
  auto library = DynamicLibrary::open(kNames);
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(library->name(), kMath);
}

TEST(DynamicLibrary, SaysWhatWasTriedAndWhyItFailed) {
  const std::string kNames[] = {"libhoro_missing_a.so", "libhoro_missing_b.so"};
  auto library = DynamicLibrary::open(kNames);
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), Code::kNotFound);
  EXPECT_NE(library.status().message().find("libhoro_missing_a.so (libhoro_missing_a.so: cannot open"),
            std::string::npos)
      << library.status();
  EXPECT_NE(library.status().message().find("libhoro_missing_b.so ("), std::string::npos) << library.status();
}

TEST(DynamicLibrary, FindsOnlyWhatIsLoaded) {
  const std::string kLoaded[] = {"libc.so.6"};
  EXPECT_TRUE(DynamicLibrary::find_loaded(kLoaded).ok());
  const std::string kAbsent[] = {"libhoro_missing.so"};
  EXPECT_FALSE(DynamicLibrary::find_loaded(kAbsent).ok());
}

TEST(DynamicLibrary, BindsATableOfSymbols) {
  const std::string kNames[] = {kMath};
  auto library = DynamicLibrary::open(kNames);
  ASSERT_TRUE(library.ok()) << library.status();
  double (*cosine)(double) = nullptr;
  void (*absent)() = nullptr;
  const Symbol kTable[] = {symbol("cos", &cosine), optional_symbol("horo_no_such_function", &absent)};
  Status status = library->bind(kTable);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(cosine(0.0), 1.0);
  EXPECT_EQ(absent, nullptr);
}

TEST(DynamicLibrary, BindsNothingWhenARequiredSymbolIsMissing) {
  const std::string kNames[] = {kMath};
  auto library = DynamicLibrary::open(kNames);
  ASSERT_TRUE(library.ok()) << library.status();
  double (*cosine)(double) = nullptr;
  void (*first)() = nullptr;
  void (*second)() = nullptr;
  const Symbol kTable[] = {symbol("cos", &cosine), symbol("horo_absent_1", &first), symbol("horo_absent_2", &second)};
  Status status = library->bind(kTable);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(),
            "libm.so.6 lacks the symbols horo_absent_1, horo_absent_2; another version of it is needed");
  EXPECT_EQ(cosine, nullptr);
}

}  // namespace
}  // namespace horo
