// replaced: attributes of Python objects that have another value while somebody holds them so.
//
// A `Replaced` is one attribute; any number of holders, in any threads, may enter and leave in any
// order. The first one takes what stands there, and the last one puts it back. What somebody else
// has put there meanwhile stays. A value of ours is never taken for what stood there before.
//
// Entering and leaving run no Python code, so neither Ctrl-C nor another thread comes between their
// steps: `with` calls them from C (the GIL is held all the time). For that the owner is a
// dictionary, a module or a class.
#pragma once

#include <c10/macros/Export.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace jit_amp {

class C10_HIDDEN Replaced {
 public:
  // The owner is a dictionary, whose item it is then, or has the attribute.
  Replaced(pybind11::object owner, pybind11::object name, pybind11::object value);
  ~Replaced();
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

  // Whose it is: this thread's, or of no thread (0).
  void enter(unsigned long thread = PyThread_get_thread_ident());
  void exit(unsigned long thread = PyThread_get_thread_ident());
  // In a forked child: the holders of threads that are not there are none.
  static void forget_other_threads();

  bool is_held() const;
  // What stood there before the first holder came; None where nothing did.
  pybind11::object original() const;

 private:
  pybind11::object now() const;  // null where there is nothing
  void set(const pybind11::object& value) const;
  void put_back();

  pybind11::object owner_, name_, value_, original_;
  bool was_held_ = false;
  std::map<unsigned long, int64_t> holders_;  // how many of each thread
};

// Several that are entered at once, and left in the opposite order.
struct C10_HIDDEN Replacements {
  std::vector<std::shared_ptr<Replaced>> all;

  void enter() const;
  void exit() const;
};

// One holder of replacements, of no thread until it is a thread's block. It lets go when it is
// released, when its block is left, or when it is freed.
class C10_HIDDEN Hold {
 public:
  explicit Hold(Replacements replacements);
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void begin_block();
  void release();
  bool is_released() const;
  // Whether it is the block of another thread.
  bool is_anothers() const;

 private:
  Replacements replacements_;
  unsigned long thread_ = 0;
  bool is_released_ = false;
};

// Calls that are made in this order, each whatever becomes of those before it. One that Ctrl-C
// interrupts, or what else is no `Exception`, is made again: it may be made twice.
struct C10_HIDDEN AtExit {
  std::vector<pybind11::object> calls;
  // What is called when it is entered, if not None; where that raises, they are called at once.
  pybind11::object begin;

  void enter() const;
  // Throws what the first of them that fails raises.
  void exit() const;
};

}  // namespace jit_amp
