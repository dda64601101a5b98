// forks: locks that a forked child finds free, and what they guard whole.
//
// A child has the thread that forked and no other: a lock that another thread held at that moment
// is never released there, and what that thread was changing stays half changed. So all that
// outlives a call is guarded by a `Lock`, which every fork() takes and gives back in both
// processes, or is done in a `Turn`, for which os.fork waits (jit_amp/_script/compiling.py). No
// std::mutex stands elsewhere.
#pragma once

#include <mutex>

namespace jit_amp {

// To be held for a look-up or a small change. Whoever holds one runs no Python, and frees nothing
// that may: a thread that waits for it may have the GIL.
class Lock {
 public:
  Lock();
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// Takes the turn to lower: graphs are read and made by one thread at a time, which holds the GIL
// because copies of Python operators need it, and waits for its turn without it. A thread that has
// its turn may take it again.
class Turn {
 public:
  Turn();
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int gil_;  // a PyGILState_STATE
};

// The turn of a thread that forks, taken before other handlers of Python's run: they may import,
// and so may whoever has the turn.
void take_turn();
void leave_turn();

}  // namespace jit_amp
