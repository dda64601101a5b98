#include "passes/source/cast_io.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/passes/shape_analysis.h>

#include <algorithm>
#include <iterator>

#include "passes/source/cast_tensors.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

constexpr char kInputs[] = "io_dtype of inputs";
constexpr char kResults[] = "io_dtype of results";

constexpr c10::ScalarType kCast[] = {c10::kHalf, c10::kBFloat16, c10::kFloat};

bool is_cast(c10::ScalarType dtype) {
  return std::find(std::begin(kCast), std::end(kCast), dtype) != std::end(kCast);
}

// What all examples tell of an argument.
AbstractValue known_of_argument(const std::vector<Stack>& examples, size_t at) {
  AbstractValue known = known_of(examples.at(0).at(at));
  for (const Stack& example : examples) {
    known = join(known, known_of(example.at(at)));
  }
  return known;
}

bool cast_arguments(Graph& graph, const IoDtype& io, const std::vector<Stack>& examples) {
  const WithInsertPoint here(*graph.nodes().begin());
  const DTypes from = DTypes::only(io.dtype);
  const CastOf to_weights = [&](const Fact&) {
    return io.of_weights && *io.of_weights != io.dtype
               ? std::optional(DTypeCast{from, *io.of_weights})
               : std::nullopt;
  };
  const CastOf to_example = [&](const Fact& fact) {
    const auto dtype = fact.dtype();
    return dtype && *dtype != io.dtype && is_cast(*dtype) ? std::optional(DTypeCast{from, *dtype})
                                                          : std::nullopt;
  };
  bool changed = false;
  for (size_t i = 1; i < graph.inputs().size(); ++i) {  // without self
    Value* const input = graph.inputs()[i];
    const std::vector<Use> uses = input->uses();
    Value* cast = examples.empty() ? cast_tensors(input, {}, to_weights, kInputs)
                                   : cast_tensors(input, known_of_argument(examples, i - 1),
                                                  to_example, kInputs);
    for (const Use& use : cast ? uses : std::vector<Use>()) {
      use.user->replaceInput(use.offset, cast);
      changed = true;
    }
  }
  return changed;
}

bool cast_results(Graph& graph, c10::ScalarType dtype) {
  const WithInsertPoint here(graph.return_node());
  std::optional<DTypes> from;
  for (const c10::ScalarType other : kCast) {
    if (other != dtype) {
      from = from ? *from | DTypes::only(other) : DTypes::only(other);
    }
  }
  const CastOf to_dtype = [&](const Fact&) { return DTypeCast{*from, dtype}; };
  bool changed = false;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    if (Value* cast = cast_tensors(graph.outputs()[i], {}, to_dtype, kResults)) {
      graph.return_node()->replaceInput(i, cast);
      changed = true;
    }
  }
  return changed;
}

}  // namespace

std::optional<c10::ScalarType> dtype_of_weights(const Module& module) {
  std::optional<c10::ScalarType> dtype;
  for (const at::Tensor& weight : module.parameters()) {
    if (dtype && weight.is_floating_point() && weight.scalar_type() != *dtype) {
      return std::nullopt;
    }
    dtype = weight.is_floating_point() ? weight.scalar_type() : dtype;
  }
  return dtype && is_cast(*dtype) ? dtype : std::nullopt;
}

bool cast_io(const std::shared_ptr<Graph>& graph, const IoDtype& io,
             const std::vector<Stack>& examples) {
  EraseShapeInformation(graph);  // a trace's says of each value that it has the example's dtype
  const bool changed = cast_arguments(*graph, io, examples);
  return cast_results(*graph, io.dtype) || changed;
}

}  // namespace jit_amp
