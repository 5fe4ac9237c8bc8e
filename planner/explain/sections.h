#pragma once
// The sections of a text answer, each with its heading and without a blank line around it.

#include <string>
#include <vector>

#include "planner/explain/layout.h"
#include "planner/search/search.h"

namespace braid {

std::string heading(const std::string& text, const std::string& remark,
                    const RenderOptions& options);

// Model, cluster and batch, with the prediction and what is known of its quality.
// `search` may be null: a plan from a file does not know how it was found.
std::string headline(const Plan& plan, const SearchResult* search, const RenderOptions& options);
// Model, cluster, batch and cost alone, as rows of two columns.
void add_task(Table& table, const Plan& plan, const RenderOptions& options);

// Pipeline shape, and which layers run how on which stage.
std::string stage_section(const Plan& plan, const RenderOptions& options);

// What one device of a stage holds against what it may use.
struct MemoryRow {
  int first = 0, last = 0;  // stages
  StagePrediction stage;
};
std::vector<MemoryRow> memory_rows(const Plan& plan);
std::string memory_section(const std::vector<MemoryRow>& rows, CostKind cost,
                           const RenderOptions& options);

// Where the busiest stage's iteration goes, and how even the pipeline is.
std::string time_section(const Plan& plan, const RenderOptions& options);

// The plans that lost to one of `best`.
std::string alternatives_section(const std::vector<Alternative>& alternatives, Seconds best,
                                 const RenderOptions& options);

}  // namespace braid
