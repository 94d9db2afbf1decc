//go:build ignore

/* Loads the library given as its argument into a scope of its own, as an interpreter does, and drives it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "loader: %s\n", dlerror());
    return 2;
  }
  int (*drive)(void) = (int (*)(void))dlsym(library, "drive");
  return drive();
}
