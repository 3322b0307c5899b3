// The plans of all algorithms for 1 to 17 ranks, run symbolically.
#include <gtest/gtest.h>

#include "horo/base/text.h"
#include "horo/collective/cut.h"
#include "horo/collective/ranks_as_threads.h"
#include "horo/collective/symbolic_machine.h"
#include "horo/collective/tree_shape.h"

namespace horo::collective {
namespace {

using Options = SymbolicMachine::Options;

struct Case {
  const Algorithm* algorithm = nullptr;
  Kind kind = Kind::kBarrier;
  Shape shape = Shape::on_one_host(1);
  uint64_t count = 0;
  int root = 0;
  Table table;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;

  int ranks() const { return shape.ranks(); }
  Operation operation(int rank) const {
    Operation operation = operation_of(kind, ranks(), rank, count, root);
    operation.op = op;
    operation.prescale = prescale;
    return operation;
  }
  std::string name() const {
    return text(algorithm->name, " ", transport::name(kind), ", ", ranks(), " ranks on ", shape.hosts().size(),
                " hosts, ", count, " elements, root ", root, ", segments of ", table.segment_bytes, " bytes, ",
                horo::name(op));
  }
};

int tree_expression(Expressions& all, const TreeShape& tree, size_t first, size_t last, const std::vector<int>& leaves,
                    bool any_order) {
  auto member = [&](size_t index) { return leaves[index]; };
  if (last - first == 1) {
    size_t low = tree.first_member(first);
    return first < tree.pairs() ? all.combined({member(low), member(low + 1)}, any_order) : member(low);
  }
  size_t middle = (first + last) / 2;
  return all.combined({tree_expression(all, tree, first, middle, leaves, any_order),
                       tree_expression(all, tree, middle, last, leaves, any_order)},
                      any_order);
}

int rank_order(Expressions& all, const std::vector<int>& parts, bool any_order) {
  return parts.size() == 1 ? parts[0] : all.combined(parts, any_order);
}

/// The order the algorithm promises, as an expression.
int promised(Expressions& all, const Case& one) {
  std::vector<int> leaves;
  for (int rank = 0; rank < one.ranks(); ++rank) {
    leaves.push_back(one.prescale == 1.0 ? all.leaf(rank) : all.scaled_before(all.leaf(rank)));
  }
  bool any_order = commutes(DType::kF32, one.op);
  if (one.algorithm->order == Order::kRank) return rank_order(all, leaves, any_order);
  if (one.algorithm->order == Order::kTree) {
    TreeShape tree(leaves.size());
    return tree_expression(all, tree, 0, tree.leaves(), leaves, any_order);
  }
  std::vector<int> hosts;
  for (const auto& members : one.shape.hosts()) {
    std::vector<int> parts;
    for (int rank : members) parts.push_back(leaves[static_cast<size_t>(rank)]);
    hosts.push_back(rank_order(all, parts, any_order));
  }
  return rank_order(all, hosts, any_order);
}

class Checker {
 public:
  explicit Checker(const Case& one) : one_(one) {
    for (int rank = 0; rank < one.ranks(); ++rank) {
      auto plan = build_plan(*one.algorithm, one.operation(rank), one.shape, rank, one.table);
      EXPECT_TRUE(plan.ok()) << one.name() << ": " << plan.status();
      if (plan.ok()) plans_.push_back(std::move(plan).value());
      input_counts_.push_back(input_count_of(one.operation(rank), rank));
    }
  }

  void check(const Options& options, bool with_cost) {
    if (plans_.size() != input_counts_.size()) return;
    SymbolicMachine machine(expressions_, plans_, input_counts_, one_.shape, options);
    std::string error = machine.run();
    ASSERT_EQ(error, "") << one_.name() << ", seed " << options.seed;
    for (int rank = 0; rank < one_.ranks(); ++rank) check_result(rank, machine.result(rank));
    if (with_cost && one_.ranks() > 1 && one_.operation(0).total() > 0) check_cost(machine);
  }

 private:
  void check_result(int rank, const std::vector<Value>& result) {
    auto origins = origins_of(one_.operation(rank), one_.ranks(), rank, one_.count);
    ASSERT_EQ(result.size(), origins.size()) << one_.name() << ", rank " << rank;
    bool reduces = one_.operation(rank).reduces();
    int expected = reduces ? promised(expressions_, one_) : 0;
    if (reduces && one_.op == ReduceOp::kAverage && one_.ranks() > 1) expected = expressions_.scaled_after(expected);
    for (size_t i = 0; i < result.size(); ++i) {
      ASSERT_EQ(result[i].element, origins[i].element) << one_.name() << ", rank " << rank << ", element " << i;
      if (!reduces) expected = expressions_.leaf(origins[i].ranks[0]);
      if (reduces && one_.algorithm->order == Order::kSlice) {
        ASSERT_EQ(expressions_.ranks_of(result[i].expression), origins[i].ranks) << one_.name();
        continue;
      }
      ASSERT_EQ(result[i].expression, expected)
          << one_.name() << ", rank " << rank << ", element " << i << " is "
          << expressions_.text_of(result[i].expression) << ", not " << expressions_.text_of(expected);
    }
  }

  void check_cost(const SymbolicMachine& machine) {
    if (one_.kind == Kind::kAlltoall) return check_alltoall_cost(machine);
    Cost cost = one_.algorithm->cost(one_.operation(0), one_.shape, one_.table);
    SymbolicMachine::Account busiest;
    for (int rank = 0; rank < one_.ranks(); ++rank) {
      const auto& account = machine.account(rank);
      busiest.bytes = std::max(busiest.bytes, account.bytes);
      busiest.messages = std::max(busiest.messages, account.messages);
      busiest.reduced = std::max(busiest.reduced, account.reduced);
      busiest.clock = std::max(busiest.clock, account.clock);
    }
    bool even = one_.count % 144 == 0;
    bool rounds = one_.algorithm->name == "hierarchy" && one_.kind == Kind::kAllreduce && !even;
    if (rounds) return check_near(busiest, cost);
    EXPECT_EQ(busiest.bytes, cost.bytes) << "bytes: " << one_.name();
    EXPECT_EQ(busiest.messages, cost.messages) << "messages: " << one_.name();
    EXPECT_EQ(busiest.reduced, cost.reduced) << "reduced: " << one_.name();
    // Where parts are empty, messages are left out and a step may be too.
    bool full = one_.count >= static_cast<uint64_t>(one_.ranks()) && one_.operation(0).counts.empty();
    EXPECT_LE(busiest.clock, cost.steps) << "steps: " << one_.name();
    if (full) {
      EXPECT_EQ(busiest.clock, cost.steps) << "steps: " << one_.name();
    }
  }

  /// Cuts within cuts round several times: up to one element per message.
  void check_near(const SymbolicMachine::Account& busiest, const Cost& cost) {
    double slack = static_cast<double>(cost.messages) * sizeof(float);
    EXPECT_NEAR(static_cast<double>(busiest.bytes), static_cast<double>(cost.bytes), slack) << one_.name();
    EXPECT_NEAR(static_cast<double>(busiest.reduced), static_cast<double>(cost.reduced), slack) << one_.name();
    EXPECT_LE(busiest.messages, cost.messages) << one_.name();
    EXPECT_LE(busiest.clock, cost.steps) << one_.name();
  }

  void check_alltoall_cost(const SymbolicMachine& machine) {
    for (int rank = 0; rank < one_.ranks(); ++rank) {
      Operation operation = one_.operation(rank);
      Cost cost = one_.algorithm->cost(operation, one_.shape, one_.table);
      uint64_t kept = operation.counts[static_cast<size_t>(rank)] * sizeof(float);
      EXPECT_EQ(machine.account(rank).bytes, cost.bytes - kept) << one_.name();
    }
  }

  Case one_;
  Expressions expressions_;
  std::vector<Plan> plans_;
  std::vector<uint64_t> input_counts_;
};

std::vector<Shape> shapes_of(int ranks) {
  std::vector<Shape> shapes{Shape::on_one_host(ranks)};
  auto add = [&](auto host_of) {
    std::vector<int> hosts;
    for (int rank = 0; rank < ranks; ++rank) hosts.push_back(host_of(rank));
    shapes.emplace_back(hosts);
  };
  add([](int rank) { return rank; });
  add([](int rank) { return rank / 2; });
  add([](int rank) { return rank % 2; });
  add([](int rank) { return rank / 4; });
  add([](int rank) { return rank < 3 ? 7 : rank % 3; });
  return shapes;
}

template <class Visit>
void visit_cases(int ranks, Visit visit) {
  Table small;
  small.segment_bytes = 12;
  for (const Algorithm& algorithm : registry()) {
    for (int kind = 0; kind <= static_cast<int>(Kind::kSendRecv); ++kind) {
      bool rooted = operation_of(static_cast<Kind>(kind), ranks, 0, 1, 0).total() > 0 &&
                    (static_cast<Kind>(kind) == Kind::kReduce || static_cast<Kind>(kind) == Kind::kGather ||
                     static_cast<Kind>(kind) == Kind::kScatter || static_cast<Kind>(kind) == Kind::kBroadcast);
      std::vector<int> roots{0};
      if (rooted && ranks > 1) roots.push_back(ranks - 1);
      if (rooted && ranks > 2) roots.push_back(ranks / 2);
      auto shapes = shapes_of(ranks);
      bool sees_hosts = algorithm.order == Order::kHost || algorithm.name == "chain";
      if (!sees_hosts) shapes.erase(shapes.begin() + 1, shapes.end());
      for (const Shape& shape : shapes) {
        for (int root : roots) {
          for (uint64_t count : ranks <= 8 ? std::vector<uint64_t>{0, 1, 6, 37} : std::vector<uint64_t>{6, 37}) {
            for (const Table& table : {small, Table{}}) {
              Case one{&algorithm, static_cast<Kind>(kind), shape, count, root, table};
              if (algorithm.refusal(one.operation(0), shape).empty()) visit(one);
            }
          }
        }
      }
    }
  }
}

class Plans : public testing::TestWithParam<int> {};

TEST_P(Plans, ReduceEveryElementOnceInThePromisedOrderAtTheDocumentedCost) {
  visit_cases(GetParam(), [](const Case& one) { Checker(one).check({}, true); });
}

TEST_P(Plans, DependOnNoBufferingAndNoParticularSchedule) {
  uint64_t seed = 1;
  visit_cases(GetParam(), [&](const Case& one) {
    if (one.count == 37) return;  // The smaller ones have the same phases.
    Checker checker(one);
    checker.check({Schedule::kWorkFirst, 0, false}, false);
    checker.check({Schedule::kRandom, seed++, false}, false);
  });
}

TEST_P(Plans, ScaleEveryElementOnce) {
  visit_cases(GetParam(), [](Case one) {
    if (!one.operation(0).reduces() || one.count == 37) return;
    one.op = ReduceOp::kAverage;
    Checker(one).check({}, true);
    one.prescale = 2.0;
    if (one.ranks() > 1) Checker(one).check({}, false);
  });
}

TEST_P(Plans, CombineInOrderWhereTheOrderOfTwoShows) {
  visit_cases(GetParam(), [](Case one) {
    if (!one.operation(0).reduces() || one.count == 37) return;
    one.op = ReduceOp::kMax;
    Checker(one).check({}, true);
  });
}

TEST_P(Plans, OfAllreduceAndBroadcastMayUseTheCallersMemoryAsWork) {
  visit_cases(GetParam(), [](const Case& one) {
    if (one.kind == Kind::kAllreduce || one.kind == Kind::kBroadcast) {
      Checker(one).check({Schedule::kTransfersFirst, 0, true}, false);
      Checker(one).check({Schedule::kRandom, 99, true}, false);
    }
  });
}

TEST_P(Plans, DeliverPartsWhileTheRestIsOnItsWay) {
  visit_cases(GetParam(), [](const Case& one) {
    if (one.count == 37) return;
    Checker checker(one);
    for (Schedule schedule : {Schedule::kTransfersFirst, Schedule::kWorkFirst, Schedule::kRandom}) {
      checker.check({schedule, 7, false, true}, false);
    }
  });
}

// Of the segments of a pairwise allreduce only the last is not delivered by then.
TEST(PairwisePlans, DeliverEachSegmentInThePhaseAfterItCame) {
  Table table;
  table.segment_bytes = 40;
  for (int ranks : {2, 3, 8}) {
    const Case one{find_algorithm("pairwise"), Kind::kAllreduce, Shape::on_one_host(ranks), 1000, 0, table};
    const auto segment_count = segments(table, Cut(1000, static_cast<size_t>(ranks)).longest(), sizeof(float));
    for (int rank = 0; rank < ranks; ++rank) {
      auto plan = build_plan(*one.algorithm, one.operation(rank), one.shape, rank, table);
      ASSERT_TRUE(plan.ok()) << plan.status();
      uint64_t late = 0;
      for (const Delivery& delivery : plan->deliveries) {
        if (delivery.phase == plan->phases.size()) late += delivery.from.count;
      }
      EXPECT_LE(late, 1000 / segment_count + static_cast<uint64_t>(ranks)) << ranks << " ranks, rank " << rank;
    }
  }
}

TEST(HierarchyPlans, CostWhatTheFormulaSaysWhereCutsComeOutEven) {
  Table table;
  for (uint64_t segment_bytes : {uint64_t{48}, uint64_t{96}, table.segment_bytes}) {
    for (const auto& host_of : {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 0, 0, 1, 1, 1},
                                std::vector<int>{0, 0, 1, 1, 2, 2}, std::vector<int>{0, 0, 0, 0, 1, 1, 2}}) {
      table.segment_bytes = segment_bytes;
      Checker({find_algorithm("hierarchy"), Kind::kAllreduce, Shape(host_of), 144, 0, table}).check({}, true);
    }
  }
}

TEST(Plans, OfMoreThan32BitsOfElementsCoverEverything) {
  constexpr uint64_t kCount = 9 * (uint64_t{1} << 32);  // 144 GiB of f32
  std::vector<Shape> shapes{Shape::on_one_host(2), Shape::on_one_host(3), Shape({0, 0, 1, 1})};
  for (const Algorithm& algorithm : registry()) {
    for (const Shape& shape : shapes) {
      Case one{&algorithm, Kind::kAllreduce, shape, kCount, 0};
      for (Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kBroadcast}) {
        one.kind = kind;
        if (!algorithm.refusal(one.operation(0), shape).empty()) continue;
        uint64_t busiest = 0;
        for (int rank = 0; rank < shape.ranks(); ++rank) {
          auto plan = build_plan(algorithm, one.operation(rank), shape, rank, one.table);
          ASSERT_TRUE(plan.ok()) << plan.status();
          uint64_t sent = 0;
          for (const Transfer& transfer : plan->transfers) {
            if (transfer.action == TransferAction::kSend) sent += transfer.range.count * sizeof(float);
          }
          busiest = std::max(busiest, sent);
          if (kind != Kind::kReduce) {
            EXPECT_EQ(plan->work_count, kCount) << one.name();
          }
          EXPECT_LT(plan->phases.size(), 1100U) << one.name();
        }
        EXPECT_EQ(busiest, algorithm.cost(one.operation(0), shape, one.table).bytes) << one.name();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Plans, testing::Range(1, 18));

}  // namespace
}  // namespace horo::collective
