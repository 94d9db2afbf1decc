// How a kernel is called on the host: once for each thread of the grid, each on a stack of its own.
#pragma once

struct fakecuda_thread {
  unsigned grid[3], block[3], block_index[3], thread_index[3];
  void *shared;
  void (*sync)(void *block_state);  // waits for all threads of the block
  void (*yield)(void *block_state); // lets other threads run
  void *block_state;
};
