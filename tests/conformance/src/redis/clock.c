/* Preloaded into a redis-server: its wall clock is the number of µs in a file, so that a test decides
 * when a key expires. Clocks that count from boot are the kernel's: the server's own timers go on.
 * Valkey 9 looks at the wall clock every ms only, and adds what a clock that counts from boot counted since.
 * Here that is CLOCK_MONOTONIC, as the processor is hidden that has a faster one; it goes in steps of 2 ms,
 * and takes one whenever the wall clock was set, so that nothing is ever added.
 *
 * Its randomness is none: by it a server chooses the order of what is in a set, and a run on another
 * server would differ. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t now_us(void) {
    static const volatile int64_t *clock;
    if (!clock) {
        const char *path = getenv("TENURE_TEST_CLOCK");
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *clock, PROT_READ, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED)
            _exit(97); /* Going on by another clock would test nothing. */
        close(fd);
        clock = page;
    }
    return *clock;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    (void)zone;
    int64_t us = now_us();
    tv->tv_sec = us / 1000000;
    tv->tv_usec = us % 1000000;
    return 0;
}

time_t time(time_t *out) {
    time_t now = now_us() / 1000000;
    if (out)
        *out = now;
    return now;
}

static int in_steps(struct timespec *ts) {
    static const int64_t step_us = 2000;
    static int64_t seen_us, added_us;
    int64_t us = now_us();
    int result = syscall(SYS_clock_gettime, CLOCK_MONOTONIC, ts);
    if (__atomic_exchange_n(&seen_us, us, __ATOMIC_SEQ_CST) != us)
        __atomic_add_fetch(&added_us, step_us, __ATOMIC_SEQ_CST);
    us = ts->tv_sec * 1000000 + ts->tv_nsec / 1000;
    us += __atomic_load_n(&added_us, __ATOMIC_SEQ_CST) - us % step_us;
    ts->tv_sec = us / 1000000;
    ts->tv_nsec = us % 1000000 * 1000;
    return result;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    if (id == CLOCK_MONOTONIC)
        return in_steps(ts);
    if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
        return syscall(SYS_clock_gettime, id, ts);
    int64_t us = now_us();
    ts->tv_sec = us / 1000000;
    ts->tv_nsec = us % 1000000 * 1000;
    return 0;
}

typedef FILE *opener(const char *restrict path, const char *restrict mode);

static FILE *open_instead(const char *name, const char *path, const char *mode) {
    if (!strcmp(path, "/dev/urandom"))
        path = "/dev/zero";
    if (!strcmp(path, "/proc/cpuinfo"))
        path = "/dev/null";
    return ((opener *)dlsym(RTLD_NEXT, name))(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return open_instead("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return open_instead("fopen64", path, mode);
}
