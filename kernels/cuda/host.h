// How a kernel is called on the host: once for each thread of the grid, in a real thread of its own.
#pragma once

struct fakecuda_thread {
  unsigned grid[3], block[3], block_index[3], thread_index[3];
  void *shared;
  void (*sync)(void *block_state); // waits for all threads of the block
  void *block_state;
};
