/*
 * libcarillon-audit.so: a second way in, for NCCL functions that a program finds in NCCL's library itself, where the
 * preloaded libcarillon-nccl.so does not come first: by dlsym in its handle (JAX, vLLM, Python's ctypes), or in a scope
 * of its own (RTLD_DEEPBIND).
 *
 *   LD_AUDIT=…/libcarillon-audit.so LD_PRELOAD=…/libcarillon-nccl.so program
 *
 * The loader reports each object to the library, and asks it about each binding to a function of NCCL's library. The
 * library answers with libcarillon-nccl.so's function of the same name, if there is one. See rtld-audit(7). The loader
 * keeps an audit library apart from the program, and would load a separate C library for it; so this one needs none.
 */
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/*
 * The two libraries, as the program has loaded them; NULL: not loaded. nccl is the first one loaded under that name,
 * the one that libcarillon-nccl.so calls. Others are left alone.
 */
static _Atomic(const struct link_map *) nccl, carillon;

/* An interface older than the second version (glibc 2.35) costs something at every call between objects. */
EXPORT unsigned int la_version(unsigned int version) { return version < 2 ? 0 : 2; }

static bool same(const char *a, const char *b) {
  while (*a != '\0' && *a == *b) {
    a++;
    b++;
  }
  return *a == *b;
}

/* An entry of an object's dynamic section; NULL if it has none. */
static const ElfW(Dyn) * entry(const struct link_map *object, ElfW(Sxword) tag) {
  for (const ElfW(Dyn) *e = object->l_ld; e != NULL && e->d_tag != DT_NULL; e++) {
    if (e->d_tag == tag) {
      return e;
    }
  }
  return NULL;
}

/* The address that an entry points to. The loader has relocated most entries, and leaves others as offsets. */
static const void *target(const struct link_map *object, ElfW(Sxword) tag) {
  const ElfW(Dyn) *e = entry(object, tag);
  if (e == NULL) {
    return NULL;
  }
  return (const void *)(e->d_un.d_ptr < object->l_addr ? object->l_addr + e->d_un.d_ptr : e->d_un.d_ptr);
}

static bool is_named(const struct link_map *object, const char *name) {
  const char *strings = target(object, DT_STRTAB);
  const ElfW(Dyn) *soname = entry(object, DT_SONAME);
  return strings != NULL && soname != NULL && same(strings + soname->d_un.d_val, name);
}

static void opened(_Atomic(const struct link_map *) *as, const char *name, const struct link_map *object) {
  if (atomic_load_explicit(as, memory_order_relaxed) == NULL && is_named(object, name)) {
    atomic_store_explicit(as, object, memory_order_release);
  }
}

EXPORT unsigned int la_objopen(struct link_map *object, Lmid_t namespace, uintptr_t *cookie) {
  *cookie = (uintptr_t)object;
  if (namespace != LM_ID_BASE) {
    return 0;
  }
  opened(&nccl, "libnccl.so.2", object);
  opened(&carillon, "libcarillon-nccl.so", object);
  return object == nccl ? LA_FLG_BINDTO | LA_FLG_BINDFROM : LA_FLG_BINDFROM;
}

EXPORT unsigned int la_objclose(uintptr_t *cookie) {
  const struct link_map *object = (const struct link_map *)*cookie;
  if (object == nccl) {
    nccl = NULL;
  }
  return 0;
}

/* The address of libcarillon-nccl.so's function of that name; 0 if it has none. */
static uintptr_t ours(const char *name) {
  const struct link_map *object = atomic_load_explicit(&carillon, memory_order_acquire);
  if (object == NULL) {
    return 0;
  }
  const char *strings = target(object, DT_STRTAB);
  const ElfW(Sym) *symbols = target(object, DT_SYMTAB);
  const uint32_t *hash = target(object, DT_HASH); /* the number of buckets, the number of symbols, … */
  for (uint32_t i = 1; hash != NULL && i < hash[1]; i++) {
    if (symbols[i].st_shndx != SHN_UNDEF && same(strings + symbols[i].st_name, name)) {
      return object->l_addr + symbols[i].st_value;
    }
  }
  return 0;
}

/* NCCL's own bindings, and libcarillon-nccl.so's to NCCL, stay as they are. */
EXPORT uintptr_t la_symbind64(ElfW(Sym) *symbol, unsigned int index, uintptr_t *from, uintptr_t *to,
                              unsigned int *flags, const char *name) {
  (void)index, (void)flags;
  const uintptr_t here = (uintptr_t)nccl;
  if (here == 0 || *to != here || *from == here || *from == (uintptr_t)carillon) {
    return symbol->st_value;
  }
  const uintptr_t found = ours(name);
  return found != 0 ? found : symbol->st_value;
}
