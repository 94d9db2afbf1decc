package cuda

// The PTX is made by clang 19 (Debian: clang-19), which needs no toolkit for it:
//
//go:generate sh -c "for f in packets direct; do clang-19 -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_70 -std=c++20 -O3 -ffp-contract=off -S $DOLLAR{f}.cu -o - | gzip -9n >$DOLLAR{f}.ptx.gz; done" //nolint:lll // a command is one line
//
// The cubins are made of the PTX by NVIDIA's ptxas (of CUDA 13.0), where there is one, and sm_90.sums says of which:
//
//	for f in packets direct; do
//	  gunzip <$f.ptx.gz >$f.ptx && ptxas -arch=sm_90 $f.ptx -o - | gzip -9n >$f.sm_90.cubin.gz
//	done && sha256sum packets.ptx direct.ptx >sm_90.sums
