#include "passes/source/fix_attributes.h"

#include <torch/csrc/jit/api/module.h>

#include <sstream>
#include <unordered_set>

#include "analysis/modules.h"
#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"
#include "passes/source/fold_constants.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using c10::TypeKind;

bool is_scalar(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) {
    return is_scalar(optional->getElementType());
  }
  const TypeKind kind = type->kind();
  return kind == TypeKind::BoolType || kind == TypeKind::IntType || kind == TypeKind::FloatType ||
         kind == TypeKind::StringType || kind == TypeKind::NoneType ||
         kind == TypeKind::DeviceObjType;
}

class Reader {
 public:
  Reader(Graph& graph, const ObjectPtr& self)
      : self_(self), modules_(self, graph), nodes_(all_nodes(graph)) {}

  std::vector<Read> run() {
    for (Node* node : nodes_) {
      if (node->kind() == prim::CallMethod && is_autocast_class(node->input(0)->type())) {
        for (size_t i = 1; i < node->inputs().size(); ++i) {
          follow(node->input(i), node);
        }
      }
    }
    const bool python = std::any_of(nodes_.begin(), nodes_.end(), [](const Node* node) {
      return node->kind() == prim::PythonOp;
    });
    for (size_t i = 0; i < constants_.size(); ++i) {
      const auto& [node, value] = constants_[i];
      Graph* graph = node->owningGraph();
      const WithInsertPoint here(node->next());
      Value* constant = graph->insertConstant(value);
      node->output()->replaceAllUsesWith(constant);
      if (python) {  // which may have assigned it since the call began
        graph
            ->insertNode(
                graph->create(ops::unchanged,
                              {node->output(), constant, graph->insertConstant(reads_[i].path)}, 0))
            ->copyMetadata(node);
      }
    }
    return std::move(reads_);
  }

 private:
  // What is known when compiling of what `value` is made of.
  void follow(Value* value, const Node* scope) {
    if (!seen_.insert(value).second) {
      return;
    }
    Node* node = value->node();
    if (node->kind() == prim::GetAttr) {
      read(node, scope);
    } else if (node->kind() == prim::If) {
      follow(node->input(), scope);
      for (Block* branch : node->blocks()) {
        follow(branch->outputs()[value->offset()], scope);
      }
    } else if (node->kind() == prim::Param) {
      if (Value* outer = modules_.outside(value)) {
        follow(outer, scope);
      }
    } else if (node->blocks().empty() && node->kind() != prim::device) {  // a tensor's: at run time
      for (Value* input : node->inputs()) {
        follow(input, scope);
      }
    }
  }

  void read(Node* node, const Node* scope) {
    const auto& name = node->s(attr::name);
    const auto [module, path] = modules_.find(node->input());
    if (!module || !is_scalar(node->output()->type())) {
      return;
    }
    if (!assigned_) {
      assigned_ = assigned_attributes(self_);
    }
    if (assigned_->count({node->input()->type().get(), name})) {
      throw diagnostic(Diagnostic::assigned_attribute, scope, {path + name});
    }
    reads_.push_back({slots_of(path + name), module->getAttr(name), path + name});
    constants_.emplace_back(node, module->getAttr(name));
  }

  std::vector<size_t> slots_of(const std::string& path) const {
    std::vector<size_t> slots;
    ObjectPtr at = self_;
    std::istringstream names(path);
    for (std::string name; std::getline(names, name, '.');) {
      slots.push_back(at->type()->getAttributeSlot(name));
      if (!names.eof()) {
        at = at->getSlot(slots.back()).toObject();
      }
    }
    return slots;
  }

  ObjectPtr self_;
  Modules modules_;
  std::vector<Node*> nodes_;
  std::unordered_set<Value*> seen_;
  std::optional<Assigned> assigned_;
  std::vector<Read> reads_;
  std::vector<std::pair<Node*, c10::IValue>> constants_;
};

}  // namespace

bool Read::holds_on(const ObjectPtr& self) const {
  const c10::ivalue::Object* at = self.get();
  for (size_t i = 0; i + 1 < slots.size(); ++i) {
    at = &at->getSlot(slots[i]).toObjectRef();
  }
  return at->getSlot(slots.back()) == value;
}

std::vector<Read> read_attributes(const std::shared_ptr<Graph>& graph, const ObjectPtr& self) {
  if (!self) {
    return {};
  }
  auto reads = Reader(*graph, self).run();
  if (!reads.empty()) {
    fold_constants(graph);
  }
  return reads;
}

}  // namespace jit_amp
