// Time that goes 200 times slower, for scripts/instructions: to be preloaded.
//
// valgrind makes a server some 50 times slower. Where its clock is slower still no turn is cut short because of that, and no
// work that falls due by the clock is counted with the requests. What waits for a time waits as much longer: it would find
// that the time is not over, again and again. (Threads that sleep are left alone: no shard does.)
//
// Seeds are drawn from time and from getrandom, and the places of keys in tables depend on them. So all clocks stand still
// at the same moment in each run until a shard waits for the first time, and random bytes are always the same.
//
// valgrind runs one thread at a time, and does not know that io_uring_enter may wait: all others would wait with it. So the
// ring is polled first, of which it does know.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#define SLOWER 200
#define CLOCKS 16
#define RINGS 1024
#define NS_A_S 1000000000LL
#define LOOK_NS (20 * NS_A_S / 1000)
#define LONGEST_NS (1000000 * NS_A_S)
#define FIRST_NS (1800000000 * NS_A_S)

// What the kernel's clocks said when a shard waited for the first time.
static long long start_ns[CLOCKS];
static atomic_bool goes;

static long call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

static int read_ns(clockid_t clock, long long *ns) {
    struct timespec now;
    if (call(SYS_clock_gettime, clock, (long)&now, 0, 0, 0, 0)) return -1;
    *ns = now.tv_sec * NS_A_S + now.tv_nsec;
    return 0;
}

static void start(void) {
    static atomic_flag starts = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&starts)) return;
    for (clockid_t clock = 0; clock < CLOCKS; clock++) read_ns(clock, &start_ns[clock]);
    atomic_store(&goes, 1);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    long long ns;
    if (read_ns(clock, &ns)) return -1;
    if (clock >= 0 && clock < CLOCKS) {
        long long passed_ns = atomic_load(&goes) ? ns - start_ns[clock] : 0;
        ns = FIRST_NS + passed_ns / SLOWER;
    } else {
        ns /= SLOWER;  // A clock of one thread, which begins at zero.
    }
    now->tv_sec = ns / NS_A_S;
    now->tv_nsec = ns % NS_A_S;
    return 0;
}

ssize_t getrandom(void *bytes, size_t len, unsigned int flags) {
    (void)flags;
    uint64_t state = 7;
    for (size_t at = 0; at < len; at++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)bytes)[at] = state >> 56;
    }
    return len;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

// How long to wait for so long a time.
static struct timespec slowed(long long ns) {
    if (ns < 0) ns = 0;
    if (ns > LONGEST_NS) ns = LONGEST_NS;
    return (struct timespec){.tv_sec = ns * SLOWER / NS_A_S, .tv_nsec = ns * SLOWER % NS_A_S};
}

static int is_ready(int fd, struct timespec *timeout) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    long ready;
    do ready = call(SYS_ppoll, (long)&polled, 1, (long)timeout, 0, 0, 0);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

// The eventfd that tells of a ring's completions: who polls the ring itself is not woken by all of them. Nor does the eventfd
// hear of each completion that a write to another eventfd brings, a shard's bell: Linux (6.18) tells of such a one once.
// So the ring is looked at every LOOK_NS, too.
static int event_of(int ring) {
    static __thread int events[RINGS];
    if (ring >= RINGS) abort();
    if (!events[ring]) {
        int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (event < 0 || call(SYS_io_uring_register, ring, IORING_REGISTER_EVENTFD, (long)&event, 1, 0, 0)) abort();
        events[ring] = event;
    }
    return events[ring];
}

static long enter(int ring, long submit, long flags, long extra, long size) {
    if (!atomic_load(&goes)) start();
    int event = event_of(ring);
    long submitted = 0;
    if (submit) submitted = call(SYS_io_uring_enter, ring, submit, 0, 0, 0, 0);
    if (submitted < 0) return -1;
    struct timespec now = {0}, left = {.tv_sec = LONGEST_NS / NS_A_S};
    if (flags & IORING_ENTER_EXT_ARG && extra) {
        const struct io_uring_getevents_arg *argument = (const void *)extra;
        if (argument->ts) {
            const struct timespec *given = (const void *)(uintptr_t)argument->ts;
            left = slowed(given->tv_sec * NS_A_S + given->tv_nsec);
        }
    }
    long long left_ns = left.tv_sec * NS_A_S + left.tv_nsec;
    int ready;
    while (!(ready = is_ready(ring, &now)) && left_ns > 0) {
        long long look_ns = left_ns < LOOK_NS ? left_ns : LOOK_NS;
        struct timespec look = {.tv_nsec = look_ns};
        uint64_t count;
        if (is_ready(event, &look)) call(SYS_read, event, (long)&count, sizeof count, 0, 0, 0);
        left_ns -= look_ns - look.tv_nsec;  // ppoll leaves there what is left.
    }
    long got = call(SYS_io_uring_enter, ring, 0, 0, flags, extra, size);
    if (submitted || got < 0) return submitted ? submitted : -1;
    if (ready) return 0;
    errno = ETIME;
    return -1;
}

// The kernel's moment for one of the slow clock.
static int put_right(clockid_t clock, const struct timespec *until, struct timespec *right) {
    struct timespec slow;
    long long now_ns;
    if (clock_gettime(clock, &slow) || read_ns(clock, &now_ns)) return -1;
    *right = slowed((until->tv_sec - slow.tv_sec) * NS_A_S + until->tv_nsec - slow.tv_nsec);
    now_ns += right->tv_sec * NS_A_S + right->tv_nsec;
    right->tv_sec = now_ns / NS_A_S;
    right->tv_nsec = now_ns % NS_A_S;
    return 0;
}

// The allocator's threads wait so.
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict lock,
                           const struct timespec *restrict until) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec right;
    if (!next) next = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlsym(RTLD_NEXT, __func__);
    return put_right(CLOCK_REALTIME, until, &right) ? EINVAL : next(cond, lock, &right);
}

// Rust's locks wait by a system call.
long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (number == SYS_io_uring_enter && c > 0 && d & IORING_ENTER_GETEVENTS) return enter((int)a, b, d, e, f);
    struct timespec right;
    if (number == SYS_futex && (b & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && d) {
        clockid_t clock = b & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        if (put_right(clock, (const struct timespec *)d, &right)) return -1;
        d = (long)&right;
    }
    return call(number, a, b, c, d, e, f);
}
