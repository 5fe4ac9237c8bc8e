#include "planner/simulate/stream_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace braid {
namespace {

TEST(FairShare, RatesByHand) {
  struct Case {
    const char* fact;
    std::vector<double> capacities;
    std::vector<std::pair<double, std::vector<LinkUse>>> flows;
    std::vector<double> rates;
  };
  const Case cases[] = {
      {"a flow alone gets all it asks for", {10}, {{4, {{0}}}}, {4}},
      {"or all there is", {10}, {{40, {{0}}}}, {10}},
      {"two share evenly", {10}, {{40, {{0}}}, {40, {{0}}}}, {5, 5}},
      {"what a small one leaves goes to the others",
       {10},
       {{2, {{0}}}, {40, {{0}}}, {40, {{0}}}},
       {2, 4, 4}},
      {"the narrowest link counts, and leaves more on the others",
       {10, 4},
       {{40, {{0}, {1}}}, {40, {{1}}}, {40, {{0}}}},
       {2, 2, 8}},
      {"a flow of four ranks takes four parts", {10}, {{40, {{0, 4}}}, {40, {{0, 1}}}}, {2, 2}},
      {"without links nothing holds it back", {10}, {{40, {}}}, {40}},
  };
  for (const Case& c : cases) {
    FairShare fair(c.capacities);
    std::vector<Flow> flows;
    flows.reserve(c.flows.size());
    for (const auto& [most, links] : c.flows) flows.push_back({most, links});
    std::vector<double> rates;
    fair.rates(flows, rates);
    ASSERT_EQ(rates.size(), c.rates.size());
    for (std::size_t i = 0; i < rates.size(); ++i)
      EXPECT_NEAR(rates[i], c.rates[i], 1e-12) << c.fact;
  }
}

struct RandomFlows {
  std::vector<double> capacities;
  std::vector<double> most;
  std::vector<std::vector<LinkUse>> links;
};

RandomFlows random_flows(std::mt19937_64& engine) {
  const auto real = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine);
  };
  RandomFlows random;
  random.capacities.resize(1 + engine() % 5);
  for (double& capacity : random.capacities) capacity = real(1, 10);
  const std::size_t flows = 1 + engine() % 8;
  for (std::size_t i = 0; i < flows; ++i) {
    random.most.push_back(real(0.5, 8));
    random.links.emplace_back();
    for (std::size_t link = 0; link < random.capacities.size(); ++link)
      if (engine() % 2 == 0) random.links.back().push_back({static_cast<int>(link), real(0.5, 3)});
  }
  return random;
}

// What defines max-min fairness: whoever has less than it asks for uses a full link on which nobody
// has more.
TEST(FairShare, NobodyCouldHaveMoreWithoutTakingFromThePoorer) {
  std::mt19937_64 engine(9);
  for (int round = 0; round < 500; ++round) {
    const RandomFlows random = random_flows(engine);
    FairShare fair(random.capacities);
    std::vector<Flow> flows;
    for (std::size_t i = 0; i < random.most.size(); ++i)
      flows.push_back({random.most[i], random.links[i]});
    std::vector<double> rates, used(random.capacities.size(), 0), best(used);
    fair.rates(flows, rates);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      for (const LinkUse& use : flows[i].links) {
        const auto link = static_cast<std::size_t>(use.link);
        used[link] += use.ranks * rates[i];
        best[link] = std::max(best[link], rates[i]);
      }
    }
    for (std::size_t link = 0; link < used.size(); ++link)
      EXPECT_LE(used[link], random.capacities[link] * (1 + 1e-9));
    for (std::size_t i = 0; i < flows.size(); ++i) {
      EXPECT_GT(rates[i], 0);
      EXPECT_LE(rates[i], flows[i].most);
      if (rates[i] >= flows[i].most * (1 - 1e-9)) continue;
      EXPECT_TRUE(std::ranges::any_of(flows[i].links, [&](const LinkUse& use) {
        const auto link = static_cast<std::size_t>(use.link);
        return used[link] >= random.capacities[link] * (1 - 1e-9) &&
               rates[i] >= best[link] * (1 - 1e-9);
      }));
    }
  }
}

TEST(StreamClock, TwoEqualTransfersOverOneLinkTakeTwiceAsLong) {
  const Route route{.devices = {0, 1}, .links = {{0}}};
  const Work work{
      .kind = WorkKind::transfer, .route = &route, .latency = 0.5, .seconds = 3, .rate = 10};
  StreamClock alone(2, {}, {10});
  alone.start(work);
  EXPECT_TRUE(alone.next());
  EXPECT_DOUBLE_EQ(alone.now(), 3.5);
  StreamClock both(2, {}, {10});
  both.start(work);
  both.start(work);
  while (both.next()) {
  }
  EXPECT_DOUBLE_EQ(both.now(), 6.5);
  EXPECT_DOUBLE_EQ(both.delays(0).links, 6);  // two times three seconds
}

TEST(StreamClock, ComputeAndCommunicationTakeWhatOverlapSays) {
  const Route own{.devices = {0}, .links = {}};
  for (const double sending : {0.0, 1.0, 5.0, 12.0, 40.0}) {
    const Overlap overlap{.compute = 1.3, .communication = 1.7};
    StreamClock clock(1, {.transfer = {}, .collective = overlap}, {});
    clock.start({.kind = WorkKind::compute, .route = &own, .seconds = 10});
    clock.start({.kind = WorkKind::collective, .route = &own, .seconds = sending});
    while (clock.next()) {
    }
    EXPECT_NEAR(clock.now(), overlap.together(10, sending), 1e-12) << sending;
  }
}

// The dumb twin: at every moment all paces anew, and a step to the nearest end.
struct TwinWork {
  Work work;
  double starts = 0, latency = 0, left = 0, ended = -1;
};

void play_twin(std::vector<TwinWork>& works, const StreamClock::Factors& factors,
               const std::vector<double>& capacities) {
  double now = 0;
  while (true) {
    std::map<int, bool> computes;
    std::map<int, double> slows;
    std::vector<std::size_t> active;
    double next = -1;
    const auto at_most = [&](double time) { next = next < 0 ? time : std::min(next, time); };
    for (std::size_t i = 0; i < works.size(); ++i) {
      TwinWork& w = works[i];
      if (w.ended >= 0) continue;
      const double moves = w.starts + w.latency;
      if (moves > now) {
        at_most(moves);
        continue;
      }
      active.push_back(i);
      for (const int d : w.work.route->devices) {
        if (w.work.kind == WorkKind::compute) computes[d] = true;
        const Overlap& o =
            w.work.kind == WorkKind::transfer ? factors.transfer : factors.collective;
        if (w.work.kind != WorkKind::compute) slows[d] = std::max({1.0, slows[d], o.compute});
      }
    }
    if (active.empty() && next < 0) return;
    std::vector<Flow> flows;
    std::vector<double> paces(works.size(), 1), rates;
    std::vector<std::size_t> flow_of;
    for (const std::size_t i : active) {
      const Work& work = works[i].work;
      if (work.kind == WorkKind::compute) {
        paces[i] = 1 / std::max(1.0, slows[work.route->devices.front()]);
        continue;
      }
      const Overlap& o = work.kind == WorkKind::transfer ? factors.transfer : factors.collective;
      for (const int d : work.route->devices)
        if (computes[d]) paces[i] = 1 / o.communication;
      flows.push_back({paces[i] * work.rate, work.route->links});
      flow_of.push_back(i);
    }
    FairShare(capacities).rates(flows, rates);
    for (std::size_t k = 0; k < flows.size(); ++k)
      if (works[flow_of[k]].work.rate > 0)
        paces[flow_of[k]] = rates[k] / works[flow_of[k]].work.rate;
    for (const std::size_t i : active) at_most(now + works[i].left / paces[i]);
    for (const std::size_t i : active) {
      works[i].left -= (next - now) * paces[i];
      if (works[i].left < 1e-9) works[i].ended = next;
    }
    now = next;
  }
}

TEST(StreamClock, AgreesWithItsPlainTwin) {
  std::mt19937_64 engine(17);
  const auto real = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine);
  };
  for (int round = 0; round < 300; ++round) {
    constexpr int kDevices = 6;
    const std::vector<double> capacities = {3, 4, 5, 6};
    const StreamClock::Factors factors{{1.2, 1.5}, {1.4, 1.1}};
    std::vector<Route> routes(10);
    std::vector<TwinWork> works;
    for (std::size_t i = 0; i < routes.size(); ++i) {
      const int first = static_cast<int>(engine() % kDevices);
      if (i < kDevices) {  // one compute for each device
        routes[i].devices = {static_cast<int>(i)};
      } else {
        routes[i].devices = {first, (first + 1) % kDevices};
        const int link = static_cast<int>(engine() % 3);
        routes[i].links = {{link, 1}, {link + 1, 2}};
      }
      const WorkKind kind = i < kDevices        ? WorkKind::compute
                            : engine() % 2 == 0 ? WorkKind::transfer
                                                : WorkKind::collective;
      TwinWork w;
      w.latency = kind == WorkKind::compute ? 0 : real(0, 1);
      w.left = real(0.5, 4);
      w.work = {.kind = kind,
                .route = &routes[i],
                .latency = w.latency,
                .seconds = w.left,
                .rate = kind == WorkKind::compute ? 0 : real(1, 5)};
      works.push_back(w);
    }
    StreamClock clock(kDevices, factors, capacities);
    std::map<int, std::size_t> of_id;
    for (std::size_t i = 0; i < works.size(); ++i) of_id[clock.start(works[i].work)] = i;
    std::vector<double> ends(works.size(), -1);
    while (const auto id = clock.next()) ends[of_id.at(*id)] = clock.now();
    play_twin(works, factors, capacities);
    for (std::size_t i = 0; i < works.size(); ++i) EXPECT_NEAR(ends[i], works[i].ended, 1e-7);
  }
}

}  // namespace
}  // namespace braid
