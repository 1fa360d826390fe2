/* Loaded before all others: kills the process at its nth disk operation under the folder in which it was started. The file
 * kill.ctl there says which (0: none), and counts them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    int left;
    int operations;
};

static struct control unused, *control = &unused;
static char folder[4096];
#define FILES 4096
static unsigned char is_ours[FILES];

#define REAL(returned, name, ...)                                                                                      \
    static returned (*real)(__VA_ARGS__);                                                                              \
    if (!real)                                                                                                         \
    real = dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void begin(void) {
    char name[4200];
    if (!getcwd(folder, sizeof folder)) return;
    strcpy(name, folder);
    strcat(name, "/kill.ctl");
    int file = open(name, O_RDWR);
    if (file < 0) {
        folder[0] = 0;
        return;
    }
    void *mapped = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) control = mapped;
    close(file);
}

/* What is no part of the data: the claims of files, and what the server says. */
static int is_data(const char *path) {
    if (!folder[0] || strstr(path, ".lock") || strstr(path, "/proc") || strstr(path, "/sys")) return 0;
    return path[0] != '/' || !strncmp(path, folder, strlen(folder));
}

static void step(void) {
    __sync_add_and_fetch(&control->operations, 1);
    if (control->left > 0 && __sync_sub_and_fetch(&control->left, 1) == 0) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
}

static void step_in(int file) {
    if (file >= 0 && file < FILES && is_ours[file]) step();
}

int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, int);
        va_end(rest);
    }
    REAL(int, "open64", const char *, int, ...);
    int ours = is_data(path);
    if (ours && flags & O_CREAT) step();
    int file = real(path, flags, mode);
    if (file >= 0 && file < FILES) is_ours[file] = ours;
    return file;
}

int close(int file) {
    REAL(int, "close", int);
    if (file >= 0 && file < FILES) is_ours[file] = 0;
    return real(file);
}

ssize_t write(int file, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    step_in(file);
    return real(file, bytes, count);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    step_in(file);
    return real(file, parts, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    step_in(file);
    return real(file, bytes, count, at);
}

int ftruncate64(int file, off64_t length) {
    REAL(int, "ftruncate64", int, off64_t);
    step_in(file);
    return real(file, length);
}

int fdatasync(int file) {
    REAL(int, "fdatasync", int);
    step_in(file);
    return real(file);
}

int fsync(int file) {
    REAL(int, "fsync", int);
    step_in(file);
    return real(file);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    if (is_data(to)) step();
    return real(from, to);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    if (is_data(path)) step();
    return real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    if (is_data(path)) step();
    return real(path, mode);
}
