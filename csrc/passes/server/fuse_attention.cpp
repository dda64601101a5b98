#include "passes/server/fuse_attention.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/attention.h"
#include "analysis/thresholds.h"
#include "core/definitions.h"
#include "core/graphs.h"
#include "core/processor.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// The attention as a function of TorchScript, and what to call it with.
struct Call {
  std::ostringstream body = {};
  std::vector<std::pair<std::string, Value*>> arguments = {};
  size_t count = 0;

  std::string take(const std::string& type, Value* value) {
    const std::string name = (type == "float" ? "n" : "t") + std::to_string(count++);
    arguments.emplace_back(name + ": " + type, value);
    return name;
  }

  void line(const std::string& text) { body << text << "\n"; }

  std::string source() const {
    std::string text = "def attention(";
    for (const auto& argument : arguments) {
      text += argument.first + ", ";
    }
    return text + ") -> Tuple[bool, Tensor]:\n" + body.str();
  }
};

std::string number_text(double number) {
  std::ostringstream text;
  text.precision(17);
  text << number;
  const std::string digits = text.str();
  return digits.find_first_of(".en") == std::string::npos ? digits + ".0" : digits;
}

void write_steps(const Attention& found, Call& call) {
  bool has_mask = false, has_fill = false;
  const auto turned = [&](const std::string& name) {
    return found.is_by_columns ? "turned(" + name + ")" : name;
  };
  for (const AttentionStep& step : found.steps) {
    if (step.kind == AttentionStep::scale || step.kind == AttentionStep::divide) {
      const std::string factor =
          (step.kind == AttentionStep::scale ? " * " : " / ") + call.take("float", step.operand);
      call.line("        scale = scale" + factor);
      call.line(found.is_on_gpu() ? "" : "        fits = fits and is_moderate(scale)");
      call.line(found.has_half && !found.is_on_gpu()
                    ? "        fits = fits and bound * abs(scale) < limit"
                    : "");
      if (has_mask) {
        call.line("        mask = mask.to(6)" + factor);
      }
      if (has_fill) {
        call.line("        fill = fill" + factor);
      }
    } else if (step.kind == AttentionStep::add) {
      const std::string name = turned(call.take("Tensor", step.operand));
      const std::string factor = number_text(step.factor);
      call.line("        fits = fits and is_usable(" + name + ")");
      call.line(has_mask ? "        mask = mask.to(6) + " + name + ".to(6) * " + factor
                         : "        mask = term(" + name + ", " + factor + ", q)");
      has_mask = true;
    } else {
      std::string name = turned(call.take("Tensor", step.operand));
      name += step.kind == AttentionStep::keep ? ".logical_not()" : "";
      call.line(has_mask ? "        mask = mask.masked_fill(" + name + ", float(\"-inf\"))"
                         : "        mask = excluding(" + name + ", q)");
      has_mask = true;
      if (!std::isinf(step.fill)) {
        const std::string fill = number_text(step.fill);
        call.line("        fill = " + (has_fill ? "max(fill, " + fill + ")" : fill));
        has_fill = true;
      }
    }
  }
  // What is far enough below every score has no weight in float32: exp(-110) is less than it has.
  call.line(has_fill ? "        fits = fits and fill < -1.02 * abs(scale) * bound - 110.0" : "");
  call.line(has_mask ? "        fits = fits and can_mask(mask, q, k)" : "");
  // Flash attention looks for the largest product before it is scaled.
  call.line(found.is_on_gpu() ? "        fits = fits and scale > 0.0 and scale < 1e30" : "");
  call.line(has_mask && !found.is_on_gpu() ? "        fits = fits and leaves_any(mask, limit)"
                                           : "");
  call.line("        if fits:");
  call.line(std::string("            out = ") +
            (found.is_on_gpu() ? "attend_on_gpu(q, k, v, " : "attend(q, k, v, ") +
            (has_mask ? "mask" : "None") + ", scale" +
            (found.is_on_gpu() ? ")"
             : found.is_wide   ? ", emulated, blocks, True)"
                               : ", emulated, blocks, False)") +
            found.out);
  call.line("            done = True");
}

// What is asked of the processor; nothing on a GPU.
struct Asked {
  Value* emulated = nullptr;
  Value* blocks = nullptr;
};

Call call_of(const Attention& found, const Asked& asked) {
  Call call;
  if (asked.emulated) {
    call.arguments.emplace_back("emulated: bool", asked.emulated);
    call.arguments.emplace_back("blocks: bool", asked.blocks);
  }
  const std::string x = call.take("Tensor", found.first.left);
  const std::string y = call.take("Tensor", found.first.right);
  const std::string z = call.take("Tensor", found.z);
  call.line("    done = False");
  call.line("    out = " + x);
  const auto viewed = [](const std::string& name, const std::string& view) {
    return view == kTurned ? "turned(" + name + ")" : name + view;
  };
  call.line("    q = " + viewed(x, found.first.left_rows));
  call.line("    k = " + viewed(y, found.first.right_columns));
  call.line("    v = " + viewed(z, found.v));
  call.line("    if can_attend(q, k, v, " + std::to_string(found.rank) + ")" +
            (asked.blocks ? " and is_worth_it(q, k, blocks)" : "") +
            // Otherwise eager's result has other strides.
            (found.last()->kind() == aten::einsum ? " and is_as_large(v, q):" : ":"));
  call.line("        scale = 1.0");
  if (found.is_on_gpu()) {
    call.line("        fits = is_for_gpu(q, k)");
  } else {
    call.line("        bound = largest_score(q, k)");
    call.line(found.has_half ? "        limit = 6e4" : "        limit = 1e38");
    call.line("        fits = bound < limit");
  }
  write_steps(found, call);
  call.line("    return done, out");
  return call;
}

class AttentionFuser {
 public:
  explicit AttentionFuser(const std::shared_ptr<Graph>& graph) : graph_(*graph), aliases_(graph) {}

  // Whether nothing that the operator reads is written to after the program has read it.
  bool can_move(const Attention& found) {
    for (const Value* value : found.widened) {
      if (aliases_.hasWriters(value)) {
        return false;
      }
    }
    bool is_written_between = false;
    for (Node* node = found.chain.back(); node != found.last(); node = node->next()) {
      is_written_between |= may_write(node);
    }
    const auto is_fixed = [&](const Value* value) {
      return is_plain(value->type()) || !aliases_.hasWriters(value);
    };
    return !is_written_between ||
           (is_fixed(found.first.left) && is_fixed(found.first.right) && is_fixed(found.z) &&
            std::all_of(found.steps.begin(), found.steps.end(),
                        [&](const AttentionStep& step) { return is_fixed(step.operand); }));
  }

  void fuse(const Attention& found) {
    Node* last = found.last();
    Value* result = last->output();
    const WithInsertPoint here(last);
    std::vector<Value*> tried;  // whether it was computed, and what it gives
    if (found.is_on_gpu()) {
      tried = attended(found, {});
    } else {
      const auto [asked, is_wanted] = questions(found);
      tried = insert_if(
                  is_wanted, [&, asked = asked] { return attended(found, asked); },
                  [&] { return value_list{graph_.insertConstant(false), found.first.left}; })
                  ->outputs()
                  .vec();
    }
    Value* either = insert_if(tried[0], [&] { return tried[1]; }, [&] { return copied(found); });
    either->copyMetadata(result);
    result->replaceAllUsesWith(either);
    for (Node* node : found.chain) {
      node->destroy();
    }
  }

 private:
  // How it is computed, and whether it is worth trying: where the processor emulates the dtype, in
  // blocks, or by PyTorch's kernel where there are many queries.
  std::pair<Asked, Value*> questions(const Attention& found) {
    Value* x = found.first.left;
    int64_t dim = found.first.left_rows == kTurned ? -1 : -2;
    if (const size_t list = found.first.left_rows.find('['); list != std::string::npos) {
      std::istringstream dims(found.first.left_rows.substr(list + 1));
      char comma = 0;
      for (int64_t i = 0; i < found.rank - 1; ++i) {
        dims >> dim >> comma;
      }
    }
    const auto size = [&] { return graph_.insert(aten::size, {x, dim}); };
    Value* rank = graph_.insert(aten::dim, {x});
    Value* queries = insert_if(graph_.insert(aten::ge, {rank, 2}), size,
                               [&] { return graph_.insertConstant(0); });
    Value* many = graph_.insert(aten::ge, {queries, kManyQueries});
    Value* emulated = is_emulated(graph_, found.dtype);
    if (found.dtype != c10::kBFloat16 || !found.rounds_scores) {
      return {{emulated, graph_.insertConstant(false)},
              graph_.insert(aten::__or__, {emulated, many})};
    }
    Value* is_faster =
        graph_.insert(aten::__or__, {is_slow_kernel(graph_), graph_.insert(aten::__not__, {many})});
    Value* some = graph_.insert(aten::ge, {queries, kQueriesOfBlocks});
    Value* blocks = graph_.insert(aten::__and__, {is_supported(graph_, found.dtype), is_faster});
    blocks = graph_.insert(aten::__and__, {blocks, some});
    Value* either = graph_.insert(aten::__or__, {emulated, many});
    return {{emulated, blocks}, graph_.insert(aten::__or__, {either, blocks})};
  }

  std::vector<Value*> attended(const Attention& found, const Asked& asked) {
    const Call call = call_of(found, asked);
    const auto body = compiled(call.source());
    std::vector<Value*> arguments;
    for (const auto& [declared, value] : call.arguments) {
      const bool is_number = declared.find("float") != std::string::npos;
      arguments.push_back(is_number && value->type()->kind() != c10::TypeKind::FloatType
                              ? graph_.insert(Symbol::aten("Float"), {value})
                              : value);
    }
    return insertGraph(graph_, *body, arguments);
  }

  std::shared_ptr<Graph> compiled(const std::string& source) {
    std::shared_ptr<Graph>& body = bodies_[source];
    if (!body) {
      CompilationUnit unit(kAttention + source);
      body = toGraphFunction(unit.get_function("attention")).graph()->copy();
      Inline(*body);
      Node* both = body->outputs()[0]->node();
      body->eraseOutput(0);
      for (Value* each : both->inputs()) {
        body->registerOutput(each);
      }
      both->destroy();
    }
    return body;
  }

  Value* copied(const Attention& found) {
    std::unordered_map<Value*, Value*> copies;
    for (auto node = found.chain.rbegin(); node != found.chain.rend(); ++node) {
      Node* copy = graph_.insertNode(graph_.createClone(*node, [&](Value* value) {
        const auto known = copies.find(value);
        return known == copies.end() ? value : known->second;
      }));
      copies[(*node)->output()] = copy->output();
    }
    return copies.at(found.last()->output());
  }

  Graph& graph_;
  AliasDb aliases_;
  std::map<std::string, std::shared_ptr<Graph>> bodies_;
};

}  // namespace

bool fuse_attention(const std::shared_ptr<Graph>& graph, const Facts& facts) {
  std::vector<Attention> found = find_attention(*graph, facts);
  if (found.empty()) {
    return false;
  }
  AttentionFuser fuser(graph);
  found.erase(std::remove_if(found.begin(), found.end(),
                             [&](const Attention& each) { return !fuser.can_move(each); }),
              found.end());
  // The last first: one may take what another gives, which is another value afterwards.
  std::for_each(found.rbegin(), found.rend(), [&](const Attention& each) { fuser.fuse(each); });
  return !found.empty();
}

}  // namespace jit_amp
