// A kernel that a test launches: word i += by, by thread i of the grid, once the block's threads are all there.
struct thread {
  unsigned grid[3], block[3], block_index[3], thread_index[3];
  void *shared;
  void (*sync)(void *block_state);
  void (*yield)(void *block_state);
  void *block_state;
};

struct param {
  unsigned *words;
  unsigned by;
};

extern "C" const unsigned long add_params[] = {sizeof(param), 0};

extern "C" void add_host(const thread *t, void **params) {
  const param *p = static_cast<param *>(params[0]);
  t->sync(t->block_state);
  p->words[t->block_index[0] * t->block[0] + t->thread_index[0]] += p->by;
}
