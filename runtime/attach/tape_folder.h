/**
 * @file
 * The folders that a tape may go to. Used only by tape_file.c.
 */
#ifndef CARILLON_TAPE_FOLDER_H
#define CARILLON_TAPE_FOLDER_H

#include <stdbool.h>
#include <stdio.h>

/** Why a tape is not as it should be, in one line. */
struct tape_reasons {
  char text[2 * FILENAME_MAX];
};

__attribute__((format(printf, 2, 3))) void tape_reason(struct tape_reasons *reasons, const char *format, ...);

/** tape_refuse adds why a path can't be used; error is an errno value, or 0. */
void tape_refuse(struct tape_reasons *reasons, const char *path, const char *problem, int error);

enum { TAPE_FOLDERS = 3 };

/**
 * Finds the directories in which a tape may be, as tape.Dirs does: $CARILLON_TAPE_DIR, and then carillon-UID on the
 * tmpfs at /dev/shm and in the directory for temporary files. Returns how many there are.
 */
int tape_folders(char paths[TAPE_FOLDERS][FILENAME_MAX]);

/** tape_good_name says whether a text can be a part of a file's name. */
bool tape_good_name(const char *name);

/**
 * Makes the job's directory in parent if it is missing and opens it, so that nobody can exchange it. Returns -1, with
 * the reason, if it can't.
 */
int tape_folder_open(const char *parent, const char *job, struct tape_reasons *reasons);

#endif /* CARILLON_TAPE_FOLDER_H */
