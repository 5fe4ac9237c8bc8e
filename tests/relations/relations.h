#pragma once
// Relations between the answers to related questions: they hold whatever the right answer is, so
// they find wrong answers to questions that nobody has solved by hand.
//
// What relates two answers is the certificate: if every plan of question A is a plan of question B
// that takes no longer there, then B's lower bound is at most A's time. Where B's gap is zero, its
// plan is then no slower than A's.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tests/relations/random_question.h"

namespace braid {

// A question and the answer of the exact search with one thread.
class Answered {
 public:
  explicit Answered(Question question);

  const Question& question() const { return question_; }
  const SearchResult& answer() const { return answer_; }
  const Plan* plan() const { return answer_.plan ? &*answer_.plan : nullptr; }
  // Whether the plan has a spatial-temporal layer that only PrimePar's front has put into the
  // space: another cluster or batch has another front, and so a space without this plan.
  bool uses_front() const;

 private:
  Question question_;
  SearchResult answer_;
};

using Violation = std::optional<std::string>;  // what is wrong, with numbers

struct Relation {
  std::string_view name;
  int searches;  // that one check takes, about
  Violation (*violated)(const Answered&);
};

std::span<const Relation> all_relations();

// ---- for the relations themselves ----

inline constexpr double kRounding = 1e-9;  // relative
// By how much slower compute may make a plan faster. It hides tensor collectives and the reduction
// of gradients, each by itself; and the reduction of a stage of several device types is exposed by
// the fastest of them, which has least to hide it behind.
inline constexpr double kHiddenTwice = 0.10;

SearchResult ask(const Question& question, const SearchOptions& options);
SearchResult ask(const Question& question);

// Seconds of an iteration; infinite without a plan.
double time_of(const SearchResult& result);
double bound_of(const SearchResult& result);

// The price of a plan on its cluster, by a cost model made for it.
Prediction price(const Plan& plan);
bool fits(const Prediction& prediction);

// `wider`: the answer to a question whose space has the plan of `narrower`, in no more time.
Violation contradiction(const std::string& what, const SearchResult& narrower,
                        const SearchResult& wider);

// Relations of one fixed plan's price (price_relations.cpp).
Violation every_used_fact_is_felt(const Answered& answered);
Violation better_hardware_is_no_slower_for_the_same_plan(const Answered& answered);
Violation stages_of_a_class_have_one_price(const Answered& answered);
Violation twice_the_batch_takes_at_most_twice_as_long(const Answered& answered);

// The fastest plan that fits of some hundred that a random walk from the answer meets: other cuts,
// strategies and configurations of the same space (nearby_plans.cpp).
Plan fastest_of_a_walk(const Answered& answered);

}  // namespace braid
