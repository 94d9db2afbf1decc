// NCCL's parameters, which are environment variables: a parameter's handle is the variable's name.
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "fake.h"

extern char **environ;

struct ncclParamHandle {
  char key[64];
};

ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key) {
  if (!key || strncmp(key, "NCCL_", 5)) return fail(ncclInvalidArgument, "ncclParamBind: no parameter of NCCL's");
  if (!(*out = malloc(sizeof **out))) return ncclSystemError;
  snprintf((*out)->key, sizeof (*out)->key, "%s", key);
  return ncclSuccess;
}

ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *length) {
  *value = getenv(key);
  *length = *value ? (int)strlen(*value) : 0;
  return *value ? ncclSuccess : fail(ncclInvalidArgument, "%s is not set", key);
}

ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out) {
  int length;
  return ncclParamGetParameter(h->key, out, &length);
}

ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int most, int *length) {
  const char *value;
  ncclResult_t result = ncclParamGetParameter(h->key, &value, length);
  if (!result) snprintf(out, most, "%s", value);
  return result;
}

static ncclResult_t number(ncclParamHandle_t h, bool is_signed, void *out, size_t bytes) {
  const char *text;
  char *end;
  ncclResult_t result = ncclParamGetStr(h, &text);
  if (result) return result;
  errno = 0;
  uint64_t value = is_signed ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
  int unused = 64 - 8 * (int)bytes;
  bool fits = is_signed ? (int64_t)(value << unused) >> unused == (int64_t)value : value << unused >> unused == value;
  if (errno || end == text || *end || !fits) return fail(ncclInvalidArgument, "%s=%s: not such a number", h->key, text);
  memcpy(out, &value, bytes);
  return ncclSuccess;
}

#define GETTER(name, T, is_signed) \
  ncclResult_t ncclParamGet##name(ncclParamHandle_t h, T *out) { \
    return number(h, is_signed, out, sizeof *out); \
  }
GETTER(I8, int8_t, true)
GETTER(I16, int16_t, true)
GETTER(I32, int32_t, true)
GETTER(I64, int64_t, true)
GETTER(U8, uint8_t, false)
GETTER(U16, uint16_t, false)
GETTER(U32, uint32_t, false)
GETTER(U64, uint64_t, false)

ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *length) {
  static const char *keys[256];
  int n = 0;
  for (char **e = environ; *e && n < 256; e++)
    if (!strncmp(*e, "NCCL_", 5) && strchr(*e, '=')) keys[n++] = strndup(*e, strchr(*e, '=') - *e);
  *table = keys;
  *length = n;
  return ncclSuccess;
}

void ncclParamDumpAll(void) {
  for (char **e = environ; *e; e++)
    if (!strncmp(*e, "NCCL_", 5)) printf("%s\n", *e);
}
