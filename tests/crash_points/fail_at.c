// Preloaded, makes the n-th system call that changes files below a folder fail, or kills the process
// in its place:
//   FAIL_BELOW  the folder, as it stands in /proc/self/fd
//   FAIL_AT     which call, from 1; 0: none
//   FAIL_HOW    kill, enospc, eio or short (a write of half the bytes, then ENOSPC)
//   FAIL_COUNT  a file that gets the number of calls so far
// Counted are write, fsync, rename, linkat, unlink, unlinkat and mkdir.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long calls;
static atomic_int short_write;  // the next write fails: the disk is full now

static const char* below(void) { return getenv("FAIL_BELOW"); }

static int is_below(const char* path) {
  const char* folder = below();
  return folder != NULL && path != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

static int fd_is_below(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return is_below(path);
}

// A process may end without its destructors, so the count is written at every call.
static void tell(long number) {
  const char* file = getenv("FAIL_COUNT");
  FILE* out = file != NULL ? fopen(file, "w") : NULL;
  if (out == NULL) return;
  fprintf(out, "%ld\n", number);
  fclose(out);
}

// 0: go on; 1: write half; -1: fail with errno.
static int event(int is_write) {
  const char* at = getenv("FAIL_AT");
  const char* how = getenv("FAIL_HOW");
  const long number = atomic_fetch_add(&calls, 1) + 1;
  tell(number);
  if (at == NULL || how == NULL || number != atol(at)) return 0;
  if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
  if (strcmp(how, "short") == 0 && is_write) {
    atomic_store(&short_write, 1);
    return 1;
  }
  errno = strcmp(how, "eio") == 0 ? EIO : ENOSPC;
  return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void* bytes, size_t count) {
  if (below() != NULL && fd_is_below(fd)) {
    if (atomic_exchange(&short_write, 0)) {
      errno = ENOSPC;
      return -1;
    }
    const int what = event(1);
    if (what < 0) return -1;
    if (what > 0) count /= 2;
  }
  return REAL(write)(fd, bytes, count);
}

int fsync(int fd) {
  if (below() != NULL && fd_is_below(fd) && event(0) < 0) return -1;
  return REAL(fsync)(fd);
}

int rename(const char* from, const char* to) {
  if (is_below(to) && event(0) < 0) return -1;
  return REAL(rename)(from, to);
}

int linkat(int from_folder, const char* from, int folder, const char* to, int flags) {
  if (is_below(to) && event(0) < 0) return -1;
  return REAL(linkat)(from_folder, from, folder, to, flags);
}

int unlink(const char* path) {
  if (is_below(path) && event(0) < 0) return -1;
  return REAL(unlink)(path);
}

int unlinkat(int folder, const char* path, int flags) {
  if (below() != NULL && fd_is_below(folder) && event(0) < 0) return -1;
  return REAL(unlinkat)(folder, path, flags);
}

int mkdir(const char* path, mode_t mode) {
  if (is_below(path) && event(0) < 0) return -1;
  return REAL(mkdir)(path, mode);
}
