/* Loads the library given as its first argument, which is built from a program, into a scope of its own, and runs
   it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *program = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (program == NULL) {
    fprintf(stderr, "loader: %s\n", dlerror());
    return 2;
  }
  int (*run)(int, char **) = (int (*)(int, char **))dlsym(program, "main");
  return run(argc - 1, argv + 1);
}
