package attach

//go:generate go run ./internal/ncclheader nccl-api.tsv nccl.h
