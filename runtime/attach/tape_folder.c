// Compiled by cc; the go command passes over it.
//go:build ignore

#include "tape_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "tape_layout.h"

void tape_reason(struct tape_reasons *reasons, const char *format, ...) {
  const size_t length = strlen(reasons->text), left = sizeof reasons->text - length;
  const int separator = snprintf(reasons->text + length, left, "%s", length > 0 ? "; " : "");
  if ((size_t)separator >= left) {
    return;
  }
  va_list args;
  va_start(args, format);
  vsnprintf(reasons->text + length + separator, left - (size_t)separator, format, args);
  va_end(args);
}

void tape_refuse(struct tape_reasons *reasons, const char *path, const char *problem, int error) {
  tape_reason(reasons, "%s %s%s%s", path, problem, error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
}

/** add adds a directory, unless it is already in the list or its name is too long. */
static int add(char paths[TAPE_FOLDERS][FILENAME_MAX], int n, const char *path) {
  for (int i = 0; i < n; i++) {
    if (strcmp(paths[i], path) == 0) {
      return n;
    }
  }
  if (strlen(path) >= FILENAME_MAX) {
    return n;
  }
  strcpy(paths[n], path);
  return n + 1;
}

int tape_folders(char paths[TAPE_FOLDERS][FILENAME_MAX]) {
  int n = 0;
  char path[FILENAME_MAX + 32];
  const char *set = getenv("CARILLON_TAPE_DIR");
  if (set != NULL && *set != 0) {
    n = add(paths, n, set);
  }
  struct statfs fs;
  if (statfs("/dev/shm", &fs) == 0 && fs.f_type == TMPFS_MAGIC) {
    snprintf(path, sizeof path, "/dev/shm/carillon-%u", geteuid());
    n = add(paths, n, path);
  }
  const char *temporary = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/carillon-%u", temporary != NULL && *temporary != 0 ? temporary : "/tmp", geteuid());
  return add(paths, n, path);
}

bool tape_good_name(const char *name) {
  for (const char *c = name; *c != 0; c++) {
    if ((uint8_t)*c < ' ' || *c == 0x7f || *c == '/') {
      return false;
    }
  }
  return name[0] != '.' && name[0] != 0 && strlen(name) < sizeof(((struct layout_fixed *)NULL)->job);
}

/** make_all makes a directory and its missing parents. */
static int make_all(const char *path) {
  char part[FILENAME_MAX];
  size_t length = strlen(path);
  if (length == 0 || length >= sizeof part) {
    return ENAMETOOLONG;
  }
  memcpy(part, path, length + 1);
  for (size_t i = 1; i <= length; i++) {
    if (part[i] != '/' && part[i] != 0) {
      continue;
    }
    part[i] = 0;
    int made = mkdir(part, 0700) == 0 ? 0 : errno;
    struct stat is;
    if (made != 0 && (stat(part, &is) != 0 || !S_ISDIR(is.st_mode))) {
      return made == EEXIST ? ENOTDIR : made;
    }
    part[i] = path[i];
  }
  return 0;
}

/** safe refuses a directory in which other users could put files or links. */
static bool safe(int dir, const char *path, mode_t forbidden, const char *problem,
                 struct tape_reasons *reasons) {
  struct stat is;
  if (fstat(dir, &is) != 0) {
    tape_refuse(reasons, path, "can't be examined", errno);
    return false;
  }
  if (is.st_uid != geteuid()) {
    tape_reason(reasons, "%s belongs to user %u, and this process runs as user %u", path, is.st_uid, geteuid());
    return false;
  }
  if ((is.st_mode & forbidden) != 0) {
    tape_reason(reasons, "%s %s (mode %04o)", path, problem, is.st_mode & 07777);
    return false;
  }
  return true;
}

int tape_folder_open(const char *parent, const char *job, struct tape_reasons *reasons) {
  char path[FILENAME_MAX];
  int length = snprintf(path, sizeof path, "%s/%s", parent, job);
  if (length < 0 || (size_t)length >= sizeof path) {
    tape_refuse(reasons, parent, "is too long a name", 0);
    return -1;
  }
  int error = make_all(parent);
  if (error != 0) {
    tape_refuse(reasons, parent, "can't be created", error);
    return -1;
  }
  // The last element may be a link, if the user named it so; what counts is the owner of the target.
  int root = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) {
    tape_refuse(reasons, parent, "can't be opened", errno);
    return -1;
  }
  int dir = -1;
  if (!safe(root, parent, 022, "is writable by others", reasons)) {
    goto end;
  }
  if (mkdirat(root, job, 0700) != 0 && errno != EEXIST) {
    tape_refuse(reasons, path, "can't be created", errno);
    goto end;
  }
  dir = openat(root, job, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0) {
    tape_refuse(reasons, path, "can't be opened as a directory", errno);
  } else if (!safe(dir, path, 077, "is not private", reasons)) {
    close(dir);
    dir = -1;
  }
end:
  close(root);
  return dir;
}
