#include "runtime/replaced.h"

#include <optional>
#include <set>
#include <utility>

namespace jit_amp {
namespace {

// All that there are; guarded by the GIL.
std::set<Replaced*>& all_replaced() {
  static auto* all = new std::set<Replaced*>();  // some are freed when Python ends, after statics
  return *all;
}

void raise_what_python_says(bool failed) {
  if (failed) {
    throw pybind11::error_already_set();
  }
}

// How often a call is made that is interrupted each time: who holds Ctrl-C down gives up before.
constexpr int kTries = 100;

}  // namespace

Replaced::Replaced(pybind11::object owner, pybind11::object name, pybind11::object value)
    : owner_(std::move(owner)), name_(std::move(name)), value_(std::move(value)) {
  all_replaced().insert(this);
}

Replaced::~Replaced() { all_replaced().erase(this); }

void Replaced::enter(unsigned long thread) {
  if (!is_held()) {
    const pybind11::object standing = now();
    if (!was_held_ || !standing || !standing.is(value_)) {
      original_ = standing;
      was_held_ = true;
    }
    set(value_);
  }
  ++holders_[thread];
}

void Replaced::exit(unsigned long thread) {
  auto holder = holders_.find(thread);
  if (holder == holders_.end()) {  // a generator is closed in the thread that frees it
    holder = holders_.begin();
  }
  if (holder == holders_.end()) {
    return;
  }
  if (--holder->second == 0) {
    holders_.erase(holder);
  }
  if (!is_held()) {
    put_back();
  }
}

void Replaced::forget_other_threads() {
  const auto is_another = [](const auto& holder) {
    return holder.first != 0 && holder.first != PyThread_get_thread_ident();
  };
  for (Replaced* replaced : all_replaced()) {
    if (std::erase_if(replaced->holders_, is_another) > 0 && !replaced->is_held()) {
      replaced->put_back();
    }
  }
}

bool Replaced::is_held() const { return !holders_.empty(); }

pybind11::object Replaced::original() const { return original_ ? original_ : pybind11::none(); }

pybind11::object Replaced::now() const {
  if (PyDict_Check(owner_.ptr())) {
    PyObject* item = PyDict_GetItemWithError(owner_.ptr(), name_.ptr());
    raise_what_python_says(item == nullptr && PyErr_Occurred() != nullptr);
    return pybind11::reinterpret_borrow<pybind11::object>(item);
  }
  PyObject* attribute = PyObject_GetAttr(owner_.ptr(), name_.ptr());
  raise_what_python_says(attribute == nullptr);
  return pybind11::reinterpret_steal<pybind11::object>(attribute);
}

void Replaced::set(const pybind11::object& value) const {
  if (!PyDict_Check(owner_.ptr())) {
    raise_what_python_says(PyObject_SetAttr(owner_.ptr(), name_.ptr(), value.ptr()) != 0);
  } else if (value) {
    raise_what_python_says(PyDict_SetItem(owner_.ptr(), name_.ptr(), value.ptr()) != 0);
  } else {
    raise_what_python_says(PyDict_DelItem(owner_.ptr(), name_.ptr()) != 0);
  }
}

void Replaced::put_back() {
  if (const pybind11::object standing = now(); standing && standing.is(value_)) {
    set(original_);
  }
}

void Replacements::enter() const {
  for (const auto& replaced : all) {
    replaced->enter();
  }
}

void Replacements::exit() const {
  for (auto replaced = all.rbegin(); replaced != all.rend(); ++replaced) {
    (*replaced)->exit();
  }
}

Hold::Hold(Replacements replacements) : replacements_(std::move(replacements)) {
  for (const auto& replaced : replacements_.all) {
    replaced->enter(thread_);
  }
}

Hold::~Hold() { release(); }

void Hold::begin_block() {
  const unsigned long before = std::exchange(thread_, PyThread_get_thread_ident());
  for (const auto& replaced : replacements_.all) {
    if (!is_released_) {
      replaced->enter(thread_);
      replaced->exit(before);
    }
  }
}

void Hold::release() {
  if (!std::exchange(is_released_, true)) {
    for (const auto& replaced : replacements_.all) {
      replaced->exit(thread_);
    }
  }
}

bool Hold::is_released() const { return is_released_; }

bool Hold::is_anothers() const { return thread_ != 0 && thread_ != PyThread_get_thread_ident(); }

void AtExit::enter() const {
  if (begin.is_none()) {
    return;
  }
  try {
    begin();
  } catch (const pybind11::error_already_set&) {
    exit();
    throw;
  }
}

void AtExit::exit() const {
  std::optional<pybind11::error_already_set> failure;
  for (const pybind11::object& call : calls) {
    bool is_interrupted = true;
    for (int tries = 0; is_interrupted && tries < kTries; ++tries) {
      is_interrupted = false;
      try {
        call();
      } catch (const pybind11::error_already_set& error) {
        is_interrupted = !error.matches(PyExc_Exception);
        if (!failure) {
          failure.emplace(error);
        }
      }
    }
  }
  if (failure) {
    throw *failure;
  }
}

}  // namespace jit_amp
