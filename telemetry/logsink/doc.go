// Package logsink writes a process's log lines: to standard error, a file or the program's own handler and, if the
// OTEL_* variables ask for it, to a collector.
//
//	Logger ─────────────┬─▶ level, subsystem ─▶ trace ids ─▶ text or JSON, or the program's handler
//	Events ─▶ queue ────┘
//	        └──────────────▶ level, subsystem ─▶ attributes' names ─▶ otelslog ─▶ gate ─▶ exporter
//
// Logger writes before it returns. Events is for readers of the tape, which must not wait for a terminal: it queues
// lines, and drops and counts them when the queue is full.
//
// NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE mean what they mean to NCCL:
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug
package logsink
