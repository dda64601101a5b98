#include "core/places.h"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

#include "core/debug_info.h"
#include "core/printable.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

std::vector<std::string>& package_folders() {
  static auto& folders = *new std::vector<std::string>;
  return folders;
}

// Whether a file is PyTorch's or jit_amp's: of this environment, of the one in which a saved module
// was made, or what jit_amp writes into a graph.
bool is_of_a_package(std::string_view file) {
  const auto& folders = package_folders();
  return file.starts_with("<jit_amp ") || file.find("-packages/torch/") != file.npos ||
         file.find("-packages\\torch\\") != file.npos ||
         std::any_of(folders.begin(), folders.end(),
                     [&](const std::string& folder) { return file.starts_with(folder); });
}

// Whether a file is the one whose functions run what is traced.
bool is_of_tracer(std::string_view file) {
  return file.ends_with("torch/jit/_trace.py") || file.ends_with("torch\\jit\\_trace.py");
}

// A frame of Python's, as the tracer writes it: `file(line): function`.
struct PythonFrame {
  std::string file;
  int line;
  std::string function;
};

std::optional<PythonFrame> frame_in(const std::string& text) {
  const size_t closes = text.rfind("): ");
  const size_t opens = text.rfind('(', closes);
  if (closes == text.npos || opens == text.npos || opens == 0) {
    return std::nullopt;
  }
  const std::string number = text.substr(opens + 1, closes - opens - 1);
  constexpr size_t kMostDigits = 9;
  if (number.empty() || number.size() > kMostDigits ||
      number.find_first_not_of("0123456789") != number.npos) {
    return std::nullopt;
  }
  return PythonFrame{text.substr(0, opens), std::stoi(number), text.substr(closes + 3)};
}

// All frames of a traced node's source, from the innermost; none where it is a text of a program.
// The tracer names the source as the first of them.
std::vector<PythonFrame> frames_of(const SourceRange& range) {
  std::vector<PythonFrame> frames;
  if (!range.source()) {
    return frames;
  }
  std::istringstream lines(range.source()->text_str().str());
  for (std::string line; std::getline(lines, line);) {
    auto frame = frame_in(line);
    if (!frame || (frames.empty() && range.source()->filename() != frame->file)) {
      return {};
    }
    frames.push_back(std::move(*frame));
  }
  return frames;
}

// A line of a file as Python has it in memory, or on the disk; empty in a thread that runs no
// Python.
std::string source_line(const PythonFrame& frame) {
  if (!PyGILState_Check()) {
    return "";
  }
  try {
    const auto linecache = py::module_::import("linecache");
    return py::cast<std::string>(linecache.attr("getline")(frame.file, frame.line));
  } catch (const py::error_already_set&) {
    return "";
  }
}

// `is_of_this_process`: a file that was loaded may name any other.
std::string shown_frame(const PythonFrame& frame, bool is_of_this_process) {
  std::string text = "  File \"" + printable(frame.file, false) + "\", line " +
                     std::to_string(frame.line) + ", in " + printable(frame.function, false) + "\n";
  const std::string line = is_of_this_process ? source_line(frame) : "";
  return text + line + (line.empty() || line.back() == '\n' ? "" : "\n");
}

// The places of `node`, from the innermost: its own, and those of the calls that were inlined.
std::vector<SourceRange> stack_of(const Node* node) {
  std::vector<SourceRange> ranges{node->sourceRange()};
  if (const auto callstack = node->callstack()) {
    const auto calls = (*callstack)->vec();
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      ranges.push_back(std::get<SourceRange>(*call));
    }
  }
  std::erase_if(ranges, [](const SourceRange& range) { return !range.source(); });
  return ranges;
}

// What `show_frame` or `show_text` gives of the innermost place; with `users`, of the innermost
// outside of the packages. `show_frame` is told whether it is a frame of this process.
template <typename Result, typename ShowFrame, typename ShowText>
Result innermost(const Node* node, bool users, const ShowFrame& show_frame,
                 const ShowText& show_text) {
  for (const SourceRange& range : stack_of(node)) {
    const auto written = before_saving(range);
    const SourceRange& original = written ? *written : range;
    const auto frames = frames_of(original);
    for (const PythonFrame& frame : frames) {
      if (!users || !is_of_a_package(frame.file)) {
        return show_frame(frame, !written);
      }
    }
    const auto name = original.source() ? original.source()->filename() : std::nullopt;
    if (frames.empty() && !(users && name && is_of_a_package(*name))) {
      return show_text(range);
    }
  }
  return Result();
}

// A place as PyTorch shows it. In the name of its file there may be anything.
std::string shown_text(const SourceRange& range) {
  auto name = range.source()->filename();
  if (name) {
    name = printable(*name, false);
  }
  const auto source = std::make_shared<Source>(range.source()->text_str().str(), std::move(name),
                                               range.source()->starting_line_no());
  std::ostringstream shown;
  SourceRange(source, range.start(), range.end()).highlight(shown);
  return shown.str();
}

std::string innermost_text(const Node* node, bool users) {
  return innermost<std::string>(node, users, shown_frame, [](const SourceRange& range) {
    const auto written = before_saving(range);
    return written && written->source() ? shown_text(*written) + "Serialized " + shown_text(range)
                                        : shown_text(range);
  });
}

}  // namespace

void set_package_folders(std::vector<std::string> folders) {
  package_folders() = std::move(folders);
}

namespace {

// `is_of_this_process`: then Python has the line's text.
Place place_of_frame(const PythonFrame& frame, bool is_of_this_process) {
  Place place;
  place.file = frame.file;
  place.line = static_cast<size_t>(frame.line);
  if (is_of_this_process) {
    place.text = std::nullopt;
  }
  return place;
}

}  // namespace

Place place_of(const SourceRange& range) {
  const auto written = before_saving(range);
  const SourceRange& original = written ? *written : range;
  Place place;
  if (const auto at = original.file_line_col()) {
    std::tie(place.file, place.line, place.column) = *at;
    if (frames_of(original).empty()) {
      Source& source = *original.source();
      place.text = source.get_line(source.lineno_for_offset(original.start())).str();
    } else if (!written) {
      place.text = std::nullopt;
    }
  }
  return place;
}

std::optional<SourceText> source_of(const SourceRange& range) {
  if (!range.source() || !range.source()->filename() || !frames_of(range).empty()) {
    return std::nullopt;
  }
  Source& source = *range.source();
  return SourceText{*source.filename(), source.starting_line_no(), source.text_str().str()};
}

std::optional<Place> users_line(const Node* node) {
  return innermost<std::optional<Place>>(
      node, /*users=*/true,
      [](const PythonFrame& frame, bool is_of_this_process) {
        return std::optional(place_of_frame(frame, is_of_this_process));
      },
      [](const SourceRange& range) {
        const Place place = place_of(range);
        return place.line ? std::optional(place) : std::nullopt;
      });
}

std::vector<Place> traced_calls(const Node* node) {
  const SourceRange range = node->sourceRange();
  const auto written = before_saving(range);
  std::vector<Place> calls;
  for (const PythonFrame& frame : frames_of(written ? *written : range)) {
    if (is_of_tracer(frame.file)) {  // what is around it has called the tracer
      break;
    }
    if (!is_of_a_package(frame.file)) {
      calls.push_back(place_of_frame(frame, !written));
      calls.back().function = frame.function;
    }
  }
  std::reverse(calls.begin(), calls.end());
  return calls;
}

std::string users_place(const Node* node) { return innermost_text(node, /*users=*/true); }

std::string innermost_place(const Node* node) { return innermost_text(node, /*users=*/false); }

}  // namespace jit_amp
