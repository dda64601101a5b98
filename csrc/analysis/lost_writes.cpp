#include "analysis/lost_writes.h"

#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "analysis/has_scopes.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

void add_writes(GraphFunction& function, std::unordered_set<const Function*>& seen,
                std::set<Places::value_type>& writes) {
  if (!seen.insert(&function).second) {
    return;
  }
  function.ensure_defined();
  for (Node* node : all_nodes(*function.graph())) {
    const auto place = is_write(node) ? node->sourceRange().file_line_col() : std::nullopt;
    if (place) {
      writes.emplace(std::get<0>(*place), std::get<1>(*place));
    }
    const auto type = node->kind() == prim::Constant
                          ? node->output()->type()->cast<c10::FunctionType>()
                          : nullptr;
    GraphFunction* callee = type ? tryToGraphFunction(*type->function())
                            : node->kind() == prim::CallMethod ? tryToGraphFunction(node)
                                                               : nullptr;
    if (callee) {
      add_writes(*callee, seen, writes);
    }
  }
}

}  // namespace

std::vector<size_t> lost_writes(const std::vector<GraphFunction*>& functions,
                                const Places& places) {
  HasScopes has_scopes;
  if (std::none_of(functions.begin(), functions.end(),
                   [&](GraphFunction* function) { return has_scopes(*function); })) {
    return {};
  }
  std::unordered_set<const Function*> seen;
  std::set<Places::value_type> writes;
  for (GraphFunction* function : functions) {
    add_writes(*function, seen, writes);
  }
  std::vector<size_t> lost;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!writes.count(places[i])) {
      lost.push_back(i);
    }
  }
  return lost;
}

}  // namespace jit_amp
