package cuda

// clang 19 (Debian: clang-19), which needs no toolkit, makes the PTX. A function that isn't inlined would get a copy of
// the kernel's parameter in local memory:
//
//go:generate sh -c "echo packets lines fifos | xargs -n1 -P2 sh -c 'clang-19 -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_70 -std=c++20 -O3 -ffp-contract=off --cuda-feature=+ptx62 -mllvm -inline-threshold=100000 -S $DOLLAR{0}.cu -o - | gzip -9n >$DOLLAR{0}.ptx.gz'" //nolint:lll // a command is one line
//
// NVIDIA's ptxas (of CUDA 11.8: nvidia-cuda-toolkit in Debian's non-free) makes the cubins from the PTX, whose hashes
// are in sm_90.sums:
//
//	for f in packets lines fifos; do
//	  gunzip <$f.ptx.gz |
//	    sed 's/^.version 6.2/.version 7.8/; s/^.target sm_70/.target sm_90/; s|// griddep|griddep|' >$f.ptx &&
//	    ptxas -arch=sm_90 $f.ptx -o /dev/stdout | gzip -9n >$f.sm_90.cubin.gz
//	done && sha256sum packets.ptx lines.ptx fifos.ptx >sm_90.sums
