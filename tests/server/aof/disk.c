/* Loaded before all others: a disk that takes its time, is full or broken, at whose nth operation the process is killed, and
 * that tells what it was asked, so that it can be said what a power cut leaves. Its files are those under the folder in which
 * the process was started; the file disk.ctl there says what is wrong with it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    /* The process is killed before this operation from now on; 0: before none. */
    int left;
    int operations;
    /* How many milliseconds each operation on the log lasts; below 0: until it says something else. */
    int delay_ms;
    /* What each write and sync ends with; 0: with what it has done. */
    int error;
    /* How long a write to the log has lasted at most, microseconds; and how many have begun and not ended. */
    int slowest_us;
    int under_way;
};

static struct control unused, *control = &unused;
static char folder[4096];
/* The file disk.trace, if it is there: what was done, see disk.rs. */
static int trace = -1;
static pthread_mutex_t in_order = PTHREAD_MUTEX_INITIALIZER;
#define FILES 4096
enum { NOT_OURS, DATA, LOG };
static unsigned char kinds[FILES];

#define REAL(returned, name, ...)                                                                                      \
    static returned (*real)(__VA_ARGS__);                                                                              \
    if (!real)                                                                                                         \
    real = dlsym(RTLD_NEXT, name)

static int open_real(const char *path, int flags) {
    REAL(int, "open64", const char *, int, ...);
    return real(path, flags, 0);
}

__attribute__((constructor)) static void begin(void) {
    if (!getcwd(folder, sizeof folder)) return;
    int file = open_real("disk.ctl", O_RDWR);
    if (file < 0) {
        folder[0] = 0;
        return;
    }
    void *mapped = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) control = mapped;
    trace = open_real("disk.trace", O_WRONLY | O_APPEND);
}

/* The path below the folder, or nothing for what is no part of the data: the claims of files, and what the server says. */
static const char *data(const char *path) {
    size_t len = strlen(folder);
    if (!len || strstr(path, ".lock")) return 0;
    if (path[0] != '/') return strncmp(path, "./", 2) ? path : path + 2;
    return !strncmp(path, folder, len) && path[len] == '/' ? path + len + 1 : 0;
}

static int kind_of(int file) {
    return file >= 0 && file < FILES ? kinds[file] : NOT_OURS;
}

/* A line of the trace: what was done, to which open file, where, with which bytes. */
static void tell(char what, int file, uint64_t at, const struct iovec *parts, int count, uint32_t len) {
    struct iovec all[16];
    char head[17];
    int32_t id = file;
    if (trace < 0) return;
    head[0] = what;
    memcpy(head + 1, &id, 4);
    memcpy(head + 5, &at, 8);
    memcpy(head + 13, &len, 4);
    all[0].iov_base = head;
    all[0].iov_len = sizeof head;
    int used = 1;
    for (uint32_t left = len; left && count && used < 16; parts++, count--) {
        uint32_t taken = parts->iov_len < left ? parts->iov_len : left;
        all[used].iov_base = parts->iov_base;
        all[used++].iov_len = taken;
        left -= taken;
    }
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (real(trace, all, used) != (ssize_t)(sizeof head + len)) abort();
}

static void tell_text(char what, int file, uint64_t at, const char *text) {
    struct iovec part = {(void *)text, strlen(text)};
    tell(what, file, at, &part, 1, part.iov_len);
}

static void step(void) {
    __sync_add_and_fetch(&control->operations, 1);
    if (control->left > 0 && __sync_sub_and_fetch(&control->left, 1) == 0) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
}

/* Before an operation on one of our files; whether it fails. */
static int fails(int file) {
    struct timespec tick = {0, 1000000};
    step();
    if (kinds[file] == LOG)
        for (int passed = 0; control->delay_ms < 0 || passed < control->delay_ms; passed++) nanosleep(&tick, 0);
    if (!control->error) return 0;
    errno = control->error;
    return 1;
}

/* The end of an operation that was done in order. */
static void end(int error) {
    pthread_mutex_unlock(&in_order);
    errno = error;
}

int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    struct stat status;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, int);
        va_end(rest);
    }
    REAL(int, "open64", const char *, int, ...);
    const char *name = data(path);
    if (!name) return real(path, flags, mode);
    if (flags & O_CREAT) step();
    pthread_mutex_lock(&in_order);
    int file = real(path, flags, mode), error = errno;
    if (file >= 0 && file < FILES && !fstat(file, &status)) {
        int is_folder = S_ISDIR(status.st_mode);
        if (is_folder || S_ISREG(status.st_mode)) {
            kinds[file] = strstr(name, ".incr.aof") ? LOG : DATA;
            tell_text(is_folder ? 'd' : 'O', file, !!(flags & O_TRUNC), name);
        }
    }
    end(error);
    return file;
}

int close(int file) {
    REAL(int, "close", int);
    if (file >= 0 && file < FILES) kinds[file] = NOT_OURS;
    return real(file);
}

static ssize_t write_all(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (fails(file)) return -1;
    pthread_mutex_lock(&in_order);
    ssize_t done = real(file, parts, count);
    int error = errno;
    if (done > 0) tell('W', file, lseek(file, 0, SEEK_CUR) - done, parts, count, done);
    end(error);
    return done;
}

static long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (!kind_of(file)) return real(file, parts, count);
    if (kinds[file] != LOG) return write_all(file, parts, count);
    __sync_add_and_fetch(&control->under_way, 1);
    long begun_us = now_us();
    ssize_t done = write_all(file, parts, count);
    int error = errno;
    long took_us = now_us() - begun_us;
    if (took_us > control->slowest_us) control->slowest_us = took_us;
    __sync_sub_and_fetch(&control->under_way, 1);
    errno = error;
    return done;
}

ssize_t write(int file, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (!kind_of(file)) return real(file, bytes, count);
    struct iovec part = {(void *)bytes, count};
    return writev(file, &part, 1);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    if (!kind_of(file)) return real(file, bytes, count, at);
    if (fails(file)) return -1;
    pthread_mutex_lock(&in_order);
    ssize_t done = real(file, bytes, count, at);
    int error = errno;
    struct iovec part = {(void *)bytes, count};
    if (done > 0) tell('W', file, at, &part, 1, done);
    end(error);
    return done;
}

int ftruncate64(int file, off64_t length) {
    REAL(int, "ftruncate64", int, off64_t);
    if (!kind_of(file)) return real(file, length);
    if (fails(file)) return -1;
    pthread_mutex_lock(&in_order);
    int failed = real(file, length), error = errno;
    if (!failed) tell('T', file, length, 0, 0, 0);
    end(error);
    return failed;
}

/* A sync that fails has taken nothing to the disk, and what it should have taken is never tried again: so Linux does. */
static int sync_one(int file, int (*real)(int)) {
    if (!kind_of(file)) return real(file);
    if (fails(file)) {
        int error = errno;
        pthread_mutex_lock(&in_order);
        tell('F', file, 0, 0, 0, 0);
        end(error);
        return -1;
    }
    pthread_mutex_lock(&in_order);
    tell('B', file, 0, 0, 0, 0);
    pthread_mutex_unlock(&in_order);
    int failed = real(file), error = errno;
    pthread_mutex_lock(&in_order);
    if (!failed) tell('S', file, 0, 0, 0, 0);
    end(error);
    return failed;
}

int fdatasync(int file) {
    REAL(int, "fdatasync", int);
    return sync_one(file, real);
}

int fsync(int file) {
    REAL(int, "fsync", int);
    return sync_one(file, real);
}

int rename(const char *from, const char *to) {
    char both[8192];
    REAL(int, "rename", const char *, const char *);
    const char *old = data(from), *new = data(to);
    if (!old || !new || strlen(old) + strlen(new) + 2 > sizeof both) return real(from, to);
    step();
    pthread_mutex_lock(&in_order);
    int failed = real(from, to), error = errno;
    strcpy(both, old);
    strcat(both, "\n");
    strcat(both, new);
    if (!failed) tell_text('R', 0, 0, both);
    end(error);
    return failed;
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    const char *name = data(path);
    if (!name) return real(path);
    step();
    pthread_mutex_lock(&in_order);
    int failed = real(path), error = errno;
    if (!failed) tell_text('U', 0, 0, name);
    end(error);
    return failed;
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    if (data(path)) step();
    return real(path, mode);
}
