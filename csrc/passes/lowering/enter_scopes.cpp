#include "passes/lowering/enter_scopes.h"

#include <ATen/Context.h>

#include <algorithm>

#include "analysis/policy.h"
#include "core/dialect.h"
#include "core/graphs.h"
#include "passes/lowering/run_tasks.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using c10::DeviceType;

class Enterer {
 public:
  explicit Enterer(Graph& graph) : graph_(graph) {}

  void enter(const Boundary& boundary) {
    if (boundary.error) {
      insert_failure(boundary.node, *boundary.error);
    }
    const WithInsertPoint here(boundary.node);
    std::vector<Value*> devices, enabled, dtypes;
    for (const auto& [device, inside] : boundary.inside) {
      // As torch.autocast does where there is no CUDA (torch/amp/autocast_mode.py).
      const bool is_missing = device == DeviceType::CUDA && !at::hasCUDA();
      devices.push_back(name(device));
      enabled.push_back(graph_.insertConstant(inside.enabled && !is_missing));
      dtypes.push_back(inside.dtype ? graph_.insertConstant(static_cast<int64_t>(*inside.dtype))
                                    : ambient_dtype(device));
    }
    const auto list = [&](const c10::TypePtr& type, const std::vector<Value*>& values) {
      return graph_.insertNode(graph_.createList(type, values))->output();
    };
    Value* device = boundary.device_name ? boundary.device_name : devices[0];
    Value* cache = graph_.insertConstant(
        boundary.cache_enabled ? c10::IValue(*boundary.cache_enabled) : c10::IValue());
    insert(ops::enter_scope, boundary.node,
           {device, list(c10::StringType::get(), devices), list(c10::BoolType::get(), enabled),
            list(c10::IntType::get(), dtypes), cache});
  }

  void exit(const Boundary& boundary) {
    const WithInsertPoint here(boundary.node);
    insert(ops::exit_scope, boundary.node, {});
  }

 private:
  Value* name(DeviceType device) {
    return graph_.insertConstant(c10::DeviceTypeName(device, /*lower_case=*/true));
  }

  void insert(c10::Symbol kind, Node* origin, at::ArrayRef<Value*> inputs) {
    Node* node = graph_.insertNode(graph_.create(kind, inputs, 0));
    node->copyMetadata(origin);
  }

  // The dtype that holds around the call, asked where the call begins.
  Value* ambient_dtype(DeviceType device) {
    Value*& value = dtypes_[device];
    if (!value) {
      const WithInsertPoint first(*graph_.nodes().begin());
      value = graph_.insertNode(graph_.create(ops::ambient_dtype, {name(device)}, 1))
                  ->output()
                  ->setType(c10::IntType::get());
    }
    return value;
  }

  Graph& graph_;
  std::map<DeviceType, Value*> dtypes_;
};

}  // namespace

bool can_enter_scopes(Graph& graph) {
  const auto nodes = all_nodes(graph);
  return can_run_tasks(graph) && std::none_of(nodes.begin(), nodes.end(), [](const Node* node) {
           return node->kind() == prim::awaitable || is_stated(node);
         });
}

bool enter_scopes(Graph& graph, const Scopes& scopes) {
  Enterer enterer(graph);
  for (const Boundary& boundary : scopes.boundaries) {
    if (boundary.enters) {
      enterer.enter(boundary);
    } else {
      enterer.exit(boundary);
    }
  }
  for (auto node = scopes.scaffolding.rbegin(); node != scopes.scaffolding.rend(); ++node) {
    (*node)->destroy();
  }
  return !scopes.scaffolding.empty();
}

}  // namespace jit_amp
