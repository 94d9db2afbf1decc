// Package logsink is where a process's log lines go: to standard error, a file or the program's own handler, and, where
// the OTEL_* variables ask for it, to a collector.
//
//	Logger ─────────────┬─▶ level, subsystem ─▶ trace ids ─▶ text or JSON, or the program's handler
//	Events ─▶ queue ────┘
//	        └──────────────▶ level, subsystem ─▶ attributes' names ─▶ otelslog ─▶ gate ─▶ exporter
//
// Logger writes before it returns, as a log should; Events is for readers of the tape, which must not wait for a
// terminal: it queues, and drops when the queue is full. What is dropped is counted.
//
// NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE are read as NCCL does:
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug
package logsink
