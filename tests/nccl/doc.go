// Package nccl runs communicators of package runtime/engine/nccl: on a fake libnccl.so.2, whose streams and memory are
// those of a fake driver.
package nccl
