/* Loaded before all others: a disk that takes its time. The file slow.ctl in the folder in which the process was started says
 * how many milliseconds each operation on the log lasts; below 0: until it says something else. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile int unused, *delay_ms = &unused;

#define REAL(returned, name, ...)                                                                                      \
    static returned (*real)(__VA_ARGS__);                                                                              \
    if (!real)                                                                                                         \
    real = dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void begin(void) {
    int file = open("slow.ctl", O_RDWR);
    if (file < 0) return;
    void *mapped = mmap(0, sizeof *delay_ms, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) delay_ms = mapped;
    close(file);
}

/* Whether this is a file of the log that is written on and on. */
static int is_log(int file) {
    char link[64], name[4096];
    struct stat status;
    if (fstat(file, &status) || !S_ISREG(status.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0) return 0;
    name[length] = 0;
    return strstr(name, ".incr.aof") != 0;
}

static void wait_for_disk(int file) {
    if (*delay_ms == 0 || !is_log(file)) return;
    struct timespec tick = {0, 1000000};
    for (int passed = 0; *delay_ms < 0 || passed < *delay_ms; passed++) nanosleep(&tick, 0);
}

ssize_t write(int file, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    wait_for_disk(file);
    return real(file, bytes, count);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    wait_for_disk(file);
    return real(file, parts, count);
}

int fdatasync(int file) {
    REAL(int, "fdatasync", int);
    wait_for_disk(file);
    return real(file);
}

int fsync(int file) {
    REAL(int, "fsync", int);
    wait_for_disk(file);
    return real(file);
}
