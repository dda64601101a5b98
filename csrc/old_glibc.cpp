// Compiled for wheels alone (scripts/wheels): they run on systems with an older glibc than the one
// that builds them.
//
// glibc 2.34 gave two functions that are as old as itself new version names, and the extension that
// is linked with it would be refused by an older one. So here they stand under their old version
// names, for this extension alone. `__libc_single_threaded` came with glibc 2.32: libstdc++ counts
// references without atomic operations while it is true. Here it is false.
#include <pthread.h>

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
#else
#error "which version of glibc was the first for this processor?"
#endif

#define HIDDEN __attribute__((visibility("hidden")))

extern "C" {

int jit_amp_old_once(pthread_once_t* control, void (*routine)());
int jit_amp_old_trylock(pthread_mutex_t* mutex);
__asm__(".symver jit_amp_old_once, pthread_once@" OLDEST);
__asm__(".symver jit_amp_old_trylock, pthread_mutex_trylock@" OLDEST);

// What the other files call by the names in quotes.
HIDDEN int jit_amp_once(pthread_once_t* control, void (*routine)()) __asm__("pthread_once");
HIDDEN int jit_amp_trylock(pthread_mutex_t* mutex) __asm__("pthread_mutex_trylock");

int jit_amp_once(pthread_once_t* control, void (*routine)()) {
  return jit_amp_old_once(control, routine);
}

int jit_amp_trylock(pthread_mutex_t* mutex) { return jit_amp_old_trylock(mutex); }

HIDDEN extern char jit_amp_single_threaded __asm__("__libc_single_threaded");
char jit_amp_single_threaded = 0;
}
