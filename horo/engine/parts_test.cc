// The small parts of negotiated execution: what agrees, what is fused, who tells whom, what is remembered.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "horo/engine/adasum.h"
#include "horo/engine/cache.h"
#include "horo/engine/fusion.h"
#include "horo/engine/queue.h"
#include "horo/engine/runner.h"
#include "horo/engine/tree.h"

namespace horo::engine {
namespace {

Tensor tensor_of(std::string name, Kind kind = Kind::kAllreduce, std::vector<int64_t> shape = {256}) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.kind = kind;
  tensor.dtype = DType::kF32;
  tensor.shape = std::move(shape);
  return tensor;
}

Handle handle_of(const std::vector<std::string>& names) {
  std::vector<Call> calls;
  for (const std::string& name : names) calls.push_back({tensor_of(name), nullptr, nullptr, nullptr, {}});
  return std::make_shared<Submission>(std::move(calls), nullptr);
}

TEST(Unit, WhatIsImpossibleIsRefusedBeforeAnybodyHearsOfIt) {
  const auto code = [](const Tensor& tensor) { return validate({{tensor}}, 4).code(); };
  EXPECT_EQ(code(tensor_of("fine")), Code::kOk);
  EXPECT_EQ(code(tensor_of("")), Code::kInvalidArgument);
  EXPECT_EQ(code(tensor_of(std::string(5000, 'x'))), Code::kInvalidArgument);
  EXPECT_EQ(code(tensor_of("scalar", Kind::kReduceScatter, {})), Code::kInvalidArgument);
  EXPECT_EQ(code(tensor_of("scalar", Kind::kAllreduce, {})), Code::kOk);
  EXPECT_EQ(code(tensor_of("negative", Kind::kAllreduce, {-1})), Code::kInvalidArgument);
  EXPECT_EQ(code(tensor_of("huge", Kind::kAllreduce, {1LL << 40, 1LL << 40})), Code::kInvalidArgument);
  EXPECT_EQ(code(tensor_of("large", Kind::kAllreduce, {1LL << 33})), Code::kOk);
  Tensor root = tensor_of("root", Kind::kBroadcast);
  root.root = 4;
  EXPECT_EQ(code(root), Code::kInvalidArgument);
  Tensor adasum = tensor_of("adasum");
  adasum.reduction = Reduction::kAdasum;
  EXPECT_EQ(code(adasum), Code::kOk);
  adasum.dtype = DType::kI32;
  EXPECT_EQ(code(adasum), Code::kInvalidArgument);
  for (Reduction reduction : {Reduction::kMin, Reduction::kMax, Reduction::kProduct, Reduction::kOr}) {
    Tensor scaled = tensor_of("scaled");
    scaled.dtype = DType::kBool;
    scaled.reduction = reduction;
    EXPECT_EQ(code(scaled), Code::kOk);
    scaled.prescale = 0.5;
    EXPECT_EQ(code(scaled), Code::kInvalidArgument);
    scaled.prescale = 1.0;
    scaled.postscale = 0.5;
    EXPECT_EQ(code(scaled), Code::kInvalidArgument);
  }
  EXPECT_EQ(validate({{}}, 4).code(), Code::kInvalidArgument);
  EXPECT_EQ(validate({{tensor_of("a"), tensor_of("b", Kind::kBroadcast)}}, 4).code(), Code::kInvalidArgument);
}

TEST(Unit, SizesBeyondAnIntAreExactEverywhere) {
  constexpr int64_t kRows = (int64_t{1} << 31) + 17;
  Unit unit{{tensor_of("large", Kind::kAllreduce, {kRows, 5}), tensor_of("larger", Kind::kAllreduce, {kRows * 3, 7})}};
  EXPECT_EQ(unit.tensors[0].count(), static_cast<uint64_t>(kRows) * 5);
  EXPECT_EQ(unit.bytes(), static_cast<uint64_t>(kRows) * (5 + 21) * 4);
  net::Writer writer(1 << 20);
  encode(writer, unit);
  const std::vector<std::byte> bytes = writer.take();
  net::Reader reader(bytes, "a unit");
  EXPECT_EQ(decode_unit(reader), unit);
  EXPECT_TRUE(reader.finish().ok());
  const std::vector<uint64_t> rows = shares(static_cast<uint64_t>(kRows), 7);
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), uint64_t{0}), static_cast<uint64_t>(kRows));
  EXPECT_EQ(rows.front(), static_cast<uint64_t>(kRows) / 7 + 1);
  const std::vector<Range> parts = parts_in({unit.tensors[0].count(), unit.tensors[1].count()},
                                            {unit.tensors[0].count() - 3, unit.tensors[0].count() + (1ull << 33)});
  EXPECT_EQ(parts[0].count(), 3u);
  EXPECT_EQ(parts[1].begin, 3u);
  EXPECT_EQ(parts[1].count(), 1ull << 33);
  const Unit small{{tensor_of("small")}};
  EXPECT_EQ(plan_fusion({&unit, &small, &small}, {.threshold = 1 << 20}).size(), 2u) << "the large one is run alone";
}

TEST(Fusion, LeavesLargeTensorsOfAnAllreduceWhereTheyAre) {
  const auto sized = [](const char* name, int64_t bytes, Kind kind = Kind::kAllreduce) {
    Tensor tensor = tensor_of(name);
    tensor.kind = kind;
    tensor.dtype = DType::kF32;
    tensor.shape = {bytes / 4};
    return Unit{{tensor}};
  };
  const Unit small = sized("small", 4096), less = sized("less", (1 << 20) - 4), large = sized("large", 1 << 20);
  using Batches = std::vector<std::vector<size_t>>;
  EXPECT_EQ(plan_fusion({&large, &small, &less, &large, &small}, {.threshold = 1 << 30}),
            (Batches{{0}, {1, 2, 4}, {3}}));
  const Unit rows = sized("rows", 1 << 20, Kind::kAllgather);
  EXPECT_EQ(plan_fusion({&rows, &rows}, {.threshold = 1 << 30}).size(), 1u) << "which are copied anyway";
}

TEST(Unit, AGroupInAnotherOrderHasTheSameKey) {
  const Unit group{{tensor_of("a"), tensor_of("b"), tensor_of("c")}};
  const Unit turned{{tensor_of("c"), tensor_of("a"), tensor_of("b")}};
  EXPECT_EQ(group.key(), turned.key());
  EXPECT_FALSE(agree(group, turned));
}

TEST(Unit, MemoryThatIsTheSameHasOneLayout) {
  using Numbers = std::vector<int64_t>;
  EXPECT_EQ(layout_of({2, 3, 4}, Numbers{12, 4, 1}), Numbers{}) << "row by row";
  EXPECT_EQ(layout_of({2, 1, 4}, Numbers{4, 99, 1}), Numbers{}) << "one index needs no stride";
  EXPECT_EQ(layout_of({0, 3}, Numbers{7, 7}), Numbers{}) << "nothing lies anywhere";
  EXPECT_EQ(layout_of({}, Numbers{}), Numbers{});
  EXPECT_EQ(layout_of({2, 3}, Numbers{1, 2}), (Numbers{1, 2}));
  EXPECT_EQ(layout_of({2, 1, 3}, Numbers{1, 50, 2}), layout_of({2, 1, 3}, Numbers{1, -4, 2}));
}

TEST(Unit, ALayoutHasNoGapsAndTwoThatDifferAreBothNamed) {
  const auto with = [](std::vector<int64_t> strides, Kind kind = Kind::kAllreduce) {
    Tensor tensor = tensor_of("image");
    tensor.kind = kind;
    tensor.shape = {2, 3, 4, 5};
    tensor.strides = std::move(strides);
    return Unit{{tensor}};
  };
  const Unit channels_last = with({60, 1, 15, 3});
  EXPECT_TRUE(validate(channels_last, 1).ok());
  EXPECT_TRUE(validate(with({60, 1, 15, 3}, Kind::kBroadcast), 1).ok());
  for (const Unit& wrong : {with({60, 1, 15, 4}), with({120, 1, 15, 3}), with({60, 1, 15, 0}), with({60, -1, 15, 3}),
                            with({60, 1, 15}), with({60, 1, 15, 3}, Kind::kAllgather)}) {
    EXPECT_EQ(validate(wrong, 1).code(), Code::kInvalidArgument);
  }
  net::Writer writer(1 << 20);
  encode(writer, channels_last);
  encode(writer, with({60, 1, 15, 4}));
  const std::vector<std::byte> bytes = writer.take();
  net::Reader reader(bytes, "a unit");
  EXPECT_EQ(decode_unit(reader), channels_last);
  EXPECT_TRUE(reader.ok());
  decode_unit(reader);
  EXPECT_FALSE(reader.ok()) << "gaps";
  const Difference found = difference(with({}), channels_last);
  EXPECT_EQ(found.left, "[2, 3, 4, 5] row by row");
  EXPECT_EQ(found.right, "[2, 3, 4, 5] with strides [60, 1, 15, 3]");
}

TEST(Unit, EveryTermThatDiffersIsNamed) {
  const Unit unit{{tensor_of("t")}};
  const auto what = [&](auto change) {
    Unit other = unit;
    change(other.tensors[0]);
    EXPECT_FALSE(agree(unit, other));
    return difference(unit, other).what;
  };
  EXPECT_EQ(what([](Tensor& t) { t.kind = Kind::kBroadcast; }), "operations");
  EXPECT_EQ(what([](Tensor& t) { t.dtype = DType::kF64; }), "data types");
  EXPECT_EQ(what([](Tensor& t) { t.shape = {2}; }), "shapes");
  EXPECT_EQ(what([](Tensor& t) { t.strides = {1}; }), "memory layouts");
  EXPECT_EQ(what([](Tensor& t) { t.reduction = Reduction::kMax; }), "reductions");
  EXPECT_EQ(what([](Tensor& t) { t.prescale = 2; }), "prescale factors");
  EXPECT_EQ(what([](Tensor& t) { t.postscale = 2; }), "postscale factors");
  EXPECT_EQ(what([](Tensor& t) { t.root = 1; }), "root ranks");
  EXPECT_EQ(what([](Tensor& t) { t.place = Place::kDevice; }), "devices");
  const Unit group{{tensor_of("t"), tensor_of("u")}}, turned{{tensor_of("t"), tensor_of("v")}};
  EXPECT_EQ(difference(unit, group).what, "numbers of tensors in a group");
  EXPECT_EQ(difference(group, turned).what, "names of group members");
}

TEST(Fusion, TakesWhatFitsAndLooksPastWhatDoesNot) {
  std::vector<Unit> units;
  for (int i = 0; i < 6; ++i) units.push_back({{tensor_of("t" + std::to_string(i))}});  // 1 KiB each.
  units[1].tensors[0].dtype = DType::kF64;
  units[3].tensors[0].postscale = 0.5;
  std::vector<const Unit*> all;
  for (const Unit& unit : units) all.push_back(&unit);
  using Batches = std::vector<std::vector<size_t>>;
  EXPECT_EQ(plan_fusion(all, {.threshold = 1 << 20}), (Batches{{0, 2, 4, 5}, {1}, {3}}));
  EXPECT_EQ(plan_fusion(all, {.threshold = 2048}), (Batches{{0, 2}, {1}, {3}, {4, 5}}));
  EXPECT_EQ(plan_fusion(all, {.threshold = 0}), (Batches{{0}, {1}, {2}, {3}, {4}, {5}}));
  units[2].tensors.push_back(tensor_of("second"));
  EXPECT_EQ(plan_fusion(all, {.threshold = 1 << 20, .across_groups = false}), (Batches{{0, 4, 5}, {1}, {2}, {3}}));
}

TEST(Queue, ANameIsInUseUntilItIsAnswered) {
  Queue queue;
  EXPECT_EQ(queue.push(handle_of({"a", "b"})).value(), 1u) << "whoever takes must hear of it";
  EXPECT_EQ(queue.push(handle_of({"c", "b"})).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(queue.push(handle_of({"c"})).value(), 2u) << "it comes anyway; and nothing of the refused group stays";
  EXPECT_EQ(queue.push(handle_of({"d", "d"})).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(queue.waiting().units, 2u);
  EXPECT_EQ(queue.waiting().bytes, 3 * tensor_of("a").bytes());
  EXPECT_EQ(queue.take_new().size(), 2u);
  EXPECT_EQ(queue.waiting().units, 0u);
  EXPECT_TRUE(queue.take_new().empty());
  EXPECT_EQ(queue.take("b"), nullptr) << "a tensor of a group is no unit";
  EXPECT_NE(queue.take("a"), nullptr);
  EXPECT_EQ(queue.take("b"), nullptr) << "answered with the rest of its group";
  EXPECT_EQ(queue.push(handle_of({"b"})).value(), 1u);
  EXPECT_NE(queue.take("b"), nullptr);
  EXPECT_NE(queue.take("c"), nullptr);
  EXPECT_EQ(queue.size(), 0u);
  ASSERT_TRUE(queue.push(handle_of({"e", "f"})).ok());
  EXPECT_EQ(queue.close(Status(Code::kStopped, "over")).size(), 1u);
  EXPECT_EQ(queue.push(handle_of({"g"})).status().code(), Code::kStopped);
}

TEST(Queue, RemembersWhatWasHandedInUnderANameAndNotTooMuch) {
  Queue queue;
  const Handle first = handle_of({"a"});
  ASSERT_TRUE(queue.push(first).ok());
  EXPECT_EQ(queue.known(tensor_of("a")), first->shared_unit());
  EXPECT_EQ(queue.known(tensor_of("b")), nullptr);
  EXPECT_EQ(queue.known(tensor_of("a", Kind::kAllreduce, {7})), nullptr) << "another shape";
  EXPECT_NE(queue.take("a"), nullptr);
  EXPECT_EQ(queue.known(tensor_of("a")), first->shared_unit()) << "though it is answered";
  ASSERT_TRUE(queue.push(handle_of({"a", "b"})).ok());
  EXPECT_EQ(queue.known(tensor_of("a")), nullptr) << "now it is one of a group";
  EXPECT_NE(queue.take("a"), nullptr);
  for (int i = 0; i < 1000; ++i) {
    const std::string name = "once " + std::to_string(i);
    ASSERT_TRUE(queue.push(handle_of({name})).ok());
    EXPECT_NE(queue.take(name), nullptr);
    EXPECT_LE(queue.remembered(), Queue::kMostNames);
  }
}

TEST(Tree, HoldsEveryMemberOnceAndIsShallow) {
  for (int members = 1; members <= 40; ++members) {
    for (int per_host : {1, 2, 3, 64}) {
      std::vector<int> host_of;
      for (int m = 0; m < members; ++m) host_of.push_back(m / per_host);
      const collective::Shape shape(host_of);
      std::set<int> told;
      for (int m = 0; m < members; ++m) {
        const Tree tree = Tree::of(shape, m);
        EXPECT_EQ(tree.is_root(), m == 0);
        for (size_t i = 0; i < tree.children.size(); ++i) {
          EXPECT_TRUE(told.insert(tree.children[i]).second) << "two parents";
          EXPECT_EQ(Tree::of(shape, tree.children[i]).parent, m);
          EXPECT_TRUE(std::binary_search(tree.below[i].begin(), tree.below[i].end(), tree.children[i]));
        }
        int depth = 0;
        for (int at = m; at != 0; at = Tree::of(shape, at).parent) ++depth;
        EXPECT_LE(depth, 1 + std::ceil(std::log2(static_cast<double>(shape.hosts().size()) + 1)));
      }
      EXPECT_EQ(static_cast<int>(told.size()), members - 1);
    }
  }
}

TEST(Cache, ForgetsTheLeastRecentlyUsedThatNobodyWaitsFor) {
  Recency recency(2);
  for (uint32_t id = 1; id <= 4; ++id) EXPECT_EQ(recency.add(), id);
  recency.touch(1);
  EXPECT_EQ(recency.surplus([](uint32_t id) { return id == 2; }), (std::vector<uint32_t>{3, 4}));
  EXPECT_EQ(recency.add(), 5u) << "numbers are never used again";
  Cache cache;
  cache.put(1, std::make_shared<Unit>(Unit{{tensor_of("a")}}));
  cache.put(2, std::make_shared<Unit>(Unit{{tensor_of("a")}}));
  cache.forget(1);
  EXPECT_EQ(cache.id_of("a"), 2u) << "the older number goes, the name stays";
  EXPECT_EQ(cache.find(1), nullptr);
}

TEST(Identity, ChangesNothing) {
  for (Reduction reduction : {Reduction::kSum, Reduction::kMin, Reduction::kMax, Reduction::kProduct}) {
    float value = 0;
    fill_identity(reinterpret_cast<std::byte*>(&value), 1, DType::kF32, reduction);
    for (float other : {-3.5F, 0.0F, 7.0F, std::numeric_limits<float>::max()}) {
      switch (reduction) {
        case Reduction::kSum:
          EXPECT_EQ(value + other, other);
          break;
        case Reduction::kMin:
          EXPECT_EQ(std::min(value, other), other);
          break;
        case Reduction::kMax:
          EXPECT_EQ(std::max(value, other), other);
          break;
        default:
          EXPECT_EQ(value * other, other);
      }
    }
  }
  int8_t least = 0;
  fill_identity(reinterpret_cast<std::byte*>(&least), 1, DType::kI8, Reduction::kMin);
  EXPECT_EQ(least, 127);
}

TEST(Adasum, AddsWhatIsApartAndAveragesWhatIsTheSame) {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    std::vector<double> left(1001, 0.0), right(1001, 0.0);
    left[0] = 3.0;
    right[1000] = 4.0;
    std::vector<std::byte> a(left.size() * size_of(dtype)), b(a.size());
    const auto store = [&](std::vector<std::byte>& to, const std::vector<double>& from) {
      for (size_t i = 0; i < from.size(); ++i) {
        const auto narrow = static_cast<float>(from[i]);
        if (dtype == DType::kF64) std::memcpy(to.data() + i * 8, &from[i], 8);
        if (dtype == DType::kF32) std::memcpy(to.data() + i * 4, &narrow, 4);
      }
    };
    store(a, left);
    store(b, right);
    const Products apart = products(a.data(), b.data(), left.size(), dtype);
    EXPECT_EQ(apart.dot, 0.0);
    EXPECT_EQ(apart.left, 9.0);
    EXPECT_EQ(apart.right, 16.0);
    std::vector<std::byte> same = b, sum = a;
    combine(same.data(), b.data(), left.size(), dtype, products(same.data(), b.data(), left.size(), dtype));
    EXPECT_EQ(same, b);
    combine(sum.data(), b.data(), left.size(), dtype, apart);
    left[1000] = 4.0;
    store(a, left);
    EXPECT_EQ(sum, a);
  }
}

TEST(Adasum, PartsOfASliceAreCountedFromItsBegin) {
  const std::vector<uint64_t> counts{3, 0, 5};
  const std::vector<Range> parts = parts_in(counts, {2, 6});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].begin, 0u);
  EXPECT_EQ(parts[0].end, 1u);
  EXPECT_EQ(parts[1].count(), 0u);
  EXPECT_EQ(parts[2].begin, 1u);
  EXPECT_EQ(parts[2].end, 4u);
}

/// Of two members, of which the other never comes.
class LonelyCarrier : public Carrier {
 public:
  int size() const override { return 2; }
  int member() const override { return 0; }
  Status run(const collective::Operation&, const std::byte*, std::byte*, const device::Sequel&) override {
    return ++runs == fails ? Status(Code::kPeerLost, "gone") : Status();
  }
  void give_up(const Status& why) override { given_up = why; }
  int runs = 0;
  int fails = 0;  ///< The run that does.
  Status given_up;
};

class NoScratch : public Scratch {
 public:
  Result<std::span<std::byte>> get(int, uint64_t) override { return Status(Code::kUnavailable, "no memory"); }
};

TEST(Runner, WithoutRoomItTellsTheOthersInsteadOfLettingThemWait) {
  for (Reduction reduction : {Reduction::kSum, Reduction::kAdasum}) {
    LonelyCarrier carrier;
    NoScratch scratch;
    std::vector<float> values(256, 1.0F);
    std::vector<Call> calls;
    for (const char* name : {"a", "b"}) {
      Call call{tensor_of(name), reinterpret_cast<std::byte*>(values.data()), nullptr, nullptr, {}};
      call.tensor.reduction = reduction;
      calls.push_back(std::move(call));
    }
    auto submission = std::make_shared<Submission>(std::move(calls), nullptr);
    Work work;
    work.units = {submission->shared_unit()};
    work.submissions = {submission};
    const std::vector<Status> outcomes = Runner(carrier, scratch).run(work);
    EXPECT_EQ(outcomes[0].code(), Code::kUnavailable);
    EXPECT_EQ(carrier.given_up.code(), Code::kUnavailable);
    EXPECT_EQ(carrier.runs, 0);
  }
}

TEST(Runner, AGroupThatFailsInItsSecondPartSaysThatTheFirstWasOverwritten) {
  for (const bool in_place : {false, true}) {
    for (const int fails : {1, 2}) {
      LonelyCarrier carrier;
      carrier.fails = fails;
      NoScratch scratch;
      std::vector<float> values(256, 1.0F), results(256);
      const auto call = [&](const char* name, DType dtype) {
        auto* const data = reinterpret_cast<std::byte*>(values.data());
        Call one{tensor_of(name), data, in_place ? data : reinterpret_cast<std::byte*>(results.data()), nullptr, {}};
        one.tensor.dtype = dtype;
        return one;
      };
      auto submission =
          std::make_shared<Submission>(std::vector<Call>{call("a", DType::kF32), call("b", DType::kI32)}, nullptr);
      Work work;
      work.units = {submission->shared_unit()};
      work.submissions = {submission};
      const std::vector<Status> outcomes = Runner(carrier, scratch).run(work);
      EXPECT_EQ(outcomes[0].code(), Code::kPeerLost);
      EXPECT_EQ(outcomes[0].contents_intact(), !in_place);
    }
  }
}

TEST(Shares, TheFirstHaveOneMore) {
  EXPECT_EQ(shares(7, 3), (std::vector<uint64_t>{3, 2, 2}));
  EXPECT_EQ(shares(2, 4), (std::vector<uint64_t>{1, 1, 0, 0}));
  EXPECT_EQ(shares(0, 2), (std::vector<uint64_t>{0, 0}));
}

}  // namespace
}  // namespace horo::engine
