#pragma once
// Where one step of one device goes, predicted or measured.

#include <array>
#include <string>

#include "planner/core/units.h"

namespace braid {

enum class CommKind {
  tensor,        // tensor- and sequence-parallel collectives
  context,       // rings
  expert,        // tokens to experts and back
  gather,        // parameters: ZeRO-3's gathers, and updated weights on their way to all copies
  reduce,        // gradients
  redistribute,  // activations between layers of different layout
  transfer,      // activations and gradients between stages
  other,         // loss and norms
};
std::string name_of(CommKind kind);

// "Exposed" is what compute stood still for; the rest was hidden beside it.
struct CommTime {
  Seconds exposed, hidden;
  constexpr CommTime& operator+=(const CommTime& more) {
    exposed += more.exposed;
    hidden += more.hidden;
    return *this;
  }
  constexpr bool operator==(const CommTime&) const = default;
};

struct StepTerms {
  Seconds compute;  // forward, backward and what is recomputed
  CommTime tensor, context, expert, gather, reduce, redistribute;
  CommTime transfer;  // of messages that this device receives
  Seconds update;     // optimizer
  Seconds bubble;     // waiting for other stages: for what they have not sent yet, and ahead of the
                      // update for what they have not reduced yet
  CommTime other;     // loss and norms; exposed: also what no other term accounts for

  // All terms but what is hidden.
  Seconds step() const;
  CommTime& of(CommKind kind);
  const CommTime& of(CommKind kind) const;

  StepTerms& operator+=(const StepTerms& more);
  bool operator==(const StepTerms&) const = default;
};
StepTerms operator/(const StepTerms& terms, double divisor);

// The terms as data, in the order in which people read them.
struct PlainTerm {
  const char* name;
  Seconds StepTerms::*member;
};
struct CommTerm {
  const char* name;
  CommTime StepTerms::*member;
};
inline constexpr std::array kPlainTerms = {
    PlainTerm{"compute", &StepTerms::compute},
    PlainTerm{"update", &StepTerms::update},
    PlainTerm{"bubble", &StepTerms::bubble},
};
// By CommKind.
inline constexpr std::array kCommTerms = {
    CommTerm{"tensor", &StepTerms::tensor},     CommTerm{"context", &StepTerms::context},
    CommTerm{"expert", &StepTerms::expert},     CommTerm{"gather", &StepTerms::gather},
    CommTerm{"reduce", &StepTerms::reduce},     CommTerm{"redistribute", &StepTerms::redistribute},
    CommTerm{"transfer", &StepTerms::transfer}, CommTerm{"other", &StepTerms::other},
};

}  // namespace braid
