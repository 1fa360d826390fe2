/* Loaded before all others: the wall clock is ahead by as many milliseconds as the file clock.ctl says, in the folder in which
 * the process was started. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile long long unset, *ahead_ms = &unset;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real = dlsym(RTLD_NEXT, "clock_gettime");
    int file = open("clock.ctl", O_RDONLY);
    if (file < 0) return;
    void *mapped = mmap(0, sizeof *ahead_ms, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) ahead_ms = mapped;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *time) {
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, time);
    if (!result && id == CLOCK_REALTIME) {
        time->tv_sec += *ahead_ms / 1000;
        time->tv_nsec += *ahead_ms % 1000 * 1000000;
        if (time->tv_nsec >= 1000000000) time->tv_sec++, time->tv_nsec -= 1000000000;
        if (time->tv_nsec < 0) time->tv_sec--, time->tv_nsec += 1000000000;
    }
    return result;
}
