#include "core/forks.h"

#include <torch/csrc/python_headers.h>

#ifndef _WIN32
#include <pthread.h>
#endif

#include <chrono>
#include <new>
#include <thread>
#include <unordered_set>
#include <vector>

namespace jit_amp {
namespace {

// All locks there are.
struct Locks {
  std::mutex mutex;
  std::unordered_set<Lock*> all;
};

Locks& locks() {
  static auto& locks = *new Locks;  // outlives TorchScript's own statics
  return locks;
}

// No std::recursive_mutex: a child's only thread has another number than the one that took it.
std::mutex& turns() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
thread_local int turns_taken = 0;

// All of them, or none: so it does not matter in which order threads take several.
bool hold_all() {
  if (!locks().mutex.try_lock()) {
    return false;
  }
  std::vector<Lock*> held;
  for (Lock* lock : locks().all) {
    if (!lock->try_lock()) {
      for (Lock* taken : held) {
        taken->unlock();
      }
      locks().mutex.unlock();
      return false;
    }
    held.push_back(lock);
  }
  return true;
}

void release_all() {
  for (Lock* lock : locks().all) {
    lock->unlock();
  }
  locks().mutex.unlock();
}

#ifndef _WIN32
// No Python runs from here until after the fork, unless it waits.
void before_fork() {
  while (!hold_all()) {
    PyThreadState* const waiting = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (waiting) {
      PyEval_RestoreThread(waiting);
    }
  }
}

void in_child() {
  release_all();
  if (turns_taken == 0) {  // what forked was not Python, and has not waited for the turn
    new (&turns()) std::mutex;
  }
}

const int at_forks = pthread_atfork(before_fork, release_all, in_child);
#endif

}  // namespace

Lock::Lock() {
  const std::lock_guard<std::mutex> lock(locks().mutex);
  locks().all.insert(this);
}

Lock::~Lock() {
  const std::lock_guard<std::mutex> lock(locks().mutex);
  locks().all.erase(this);
}

Turn::Turn() {
  take_turn();
  gil_ = PyGILState_Ensure();
}

Turn::~Turn() {
  PyGILState_Release(static_cast<PyGILState_STATE>(gil_));
  leave_turn();
}

void take_turn() {
  if (turns_taken++ != 0) {
    return;
  }
  PyThreadState* const waiting = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
  turns().lock();
  if (waiting) {
    PyEval_RestoreThread(waiting);
  }
}

void leave_turn() {
  if (--turns_taken == 0) {
    turns().unlock();
  }
}

}  // namespace jit_amp
