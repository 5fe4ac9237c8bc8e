#include "planner/plan/step_terms.h"

namespace braid {

namespace {

const CommTerm& term_of(CommKind kind) { return kCommTerms[static_cast<std::size_t>(kind)]; }

}  // namespace

std::string name_of(CommKind kind) { return term_of(kind).name; }

CommTime& StepTerms::of(CommKind kind) { return this->*term_of(kind).member; }
const CommTime& StepTerms::of(CommKind kind) const { return this->*term_of(kind).member; }

Seconds StepTerms::step() const {
  Seconds sum;
  for (const PlainTerm& term : kPlainTerms) sum += this->*term.member;
  for (const CommTerm& term : kCommTerms) sum += (this->*term.member).exposed;
  return sum;
}

StepTerms& StepTerms::operator+=(const StepTerms& more) {
  for (const PlainTerm& term : kPlainTerms) this->*term.member += more.*term.member;
  for (const CommTerm& term : kCommTerms) this->*term.member += more.*term.member;
  return *this;
}

StepTerms operator/(const StepTerms& terms, double divisor) {
  StepTerms result;
  for (const PlainTerm& term : kPlainTerms) result.*term.member = terms.*term.member / divisor;
  for (const CommTerm& term : kCommTerms) {
    const CommTime& time = terms.*term.member;
    result.*term.member = {time.exposed / divisor, time.hidden / divisor};
  }
  return result;
}

}  // namespace braid
