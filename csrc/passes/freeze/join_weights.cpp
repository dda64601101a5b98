#include "passes/freeze/join_weights.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_set>

#include "analysis/traits.h"
#include "core/graphs.h"
#include "core/sharing.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

template <typename T>
std::optional<T> known(const Node* node, const char* name) {
  return constant_as<T>(node->namedInput(name));
}

bool is_network(const Node* node) {
  return traits_of(node).group == Group::recurrent && node->maybeSchema() &&
         node->schema().argumentIndexWithName("params");
}

// The weights of a recurrent network, if they are constants that nothing but such networks takes:
// of a constant list, or of one that is made of constants. Else none.
std::vector<at::Tensor> weights_of(const Node* network) {
  std::vector<at::Tensor> found;
  if (!is_network(network)) {
    return found;
  }
  const Value* list = network->namedInput("params");
  if (!std::all_of(list->uses().begin(), list->uses().end(), [&](const Use& use) {
        return is_network(use.user) && use.user->namedInput("params") == list;
      })) {
    return found;
  }
  if (list->node()->kind() == prim::Constant) {
    return toIValue(list)->toTensorVector();
  }
  for (const Value* weight : list->node()->inputs()) {
    // A view of it elsewhere (share_parts.h) has a place in its memory.
    if (list->node()->kind() != prim::ListConstruct || !tensor_in(weight->node()) ||
        weight->uses().size() != 1) {
      return {};
    }
    found.push_back(*tensor_in(weight->node()));
  }
  return found;
}

void put(const std::vector<at::Tensor>& weights, const Node* network) {
  Node* list = network->namedInput("params")->node();
  if (list->kind() == prim::Constant) {
    list->ival_(attr::value, c10::IValue(weights));
    return;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    list->input(i)->node()->t_(attr::value, weights[i]);
  }
}

bool are_alike(const std::vector<at::Tensor>& weights) {
  return std::all_of(weights.begin(), weights.end(), [&](const at::Tensor& weight) {
    return weight.scalar_type() == weights[0].scalar_type() &&
           weight.device() == weights[0].device() && weight.is_contiguous() &&
           !weight.requires_grad();
  });
}

// The weights as views of one tensor; as they are where cuDNN would not take them.
std::vector<at::Tensor> joined(const Node* network, const std::vector<at::Tensor>& weights) {
  const auto has_biases = known<bool>(network, "has_biases");
  const auto layers = known<int64_t>(network, "num_layers");
  const auto both_ways = known<bool>(network, "bidirectional");
  if (!has_biases || !layers || !both_ways || !are_alike(weights) ||
      !at::cudnn_is_acceptable(weights[0])) {
    return weights;
  }
  const int64_t networks = *layers * (*both_ways ? 2 : 1);
  if (networks < 1 || weights[0].dim() != 2 || weights[1].dim() != 2 || weights[1].numel() == 0) {
    return weights;
  }
  // Of each layer and direction: weights for the input and for the state, and their biases; last,
  // an LSTM's projection.
  const int64_t parts = static_cast<int64_t>(weights.size()) / networks;
  const bool is_projected = parts == (*has_biases ? 5 : 3);
  const int64_t rows = weights[1].size(0);
  const int64_t state = weights[1].size(1);
  const int64_t gates = is_projected ? 4 : rows / state;
  if (parts < 2 || gates < 1) {
    return weights;
  }
  // PyTorch's numbers (torch/backends/cudnn/rnn.py); an RNN has 0 or 1, and the same layout.
  const int64_t mode = gates == 4 ? 2 : gates == 3 ? 3 : 1;
  std::vector<at::Tensor> views;
  for (const at::Tensor& weight : weights) {
    views.push_back(weight.detach());  // it is told where its memory is from now on
  }
  const at::NoGradGuard no_grad;
  try {
    at::_cudnn_rnn_flatten_weight(views, parts, weights[0].size(1), mode, rows / gates,
                                  is_projected ? state : 0, *layers, /*batch_first=*/false,
                                  *both_ways);
  } catch (const c10::Error&) {  // of other sizes than a network has: it fails where it is called
    return weights;
  }
  return views;
}

}  // namespace

void join_weights(const std::vector<std::shared_ptr<Graph>>& methods) {
  std::unordered_set<const void*> taken;  // memory that others write to, or that is joined already
  const auto memory = [](const at::Tensor& tensor) {
    return static_cast<const void*>(tensor.storage().unsafeGetStorageImpl());
  };
  std::vector<Node*> networks;
  for (const auto& graph : methods) {
    const auto nodes = all_nodes(*graph);
    std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(networks), [](const Node* node) {
      const auto weights = weights_of(node);
      return weights.size() > 1 && weights[0].is_cuda();
    });
  }
  if (networks.empty()) {
    return;
  }
  for (const auto& graph : methods) {
    for (const Node* node : written_constants(graph)) {
      for (const at::Tensor& tensor : tensors_in(node)) {
        taken.insert(memory(tensor));
      }
    }
  }
  for (const Node* network : networks) {
    std::vector<at::Tensor> weights = weights_of(network);
    if (std::none_of(weights.begin(), weights.end(),
                     [&](const at::Tensor& weight) { return taken.count(memory(weight)); })) {
      weights = joined(network, weights);
      put(weights, network);
      for (const at::Tensor& weight : weights) {
        taken.insert(memory(weight));
      }
    }
  }
}

}  // namespace jit_amp
