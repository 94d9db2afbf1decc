// Makes the same measurement as measure.go, with MPI: each rank's median latency of a float32 sum, and the largest of
// these. Arguments: bytes, seconds for the size, least and most iterations. Prints iterations and seconds.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *v, int n) {
	qsort(v, n, sizeof *v, ascending);
	return v[n / 2];
}

static void trial(const float *send, float *recv, int count, double *took, int n) {
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < n; i++) {
		double start = MPI_Wtime();
		MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		took[i] = MPI_Wtime() - start;
	}
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	if (argc != 5) {
		fprintf(stderr, "usage: %s bytes seconds min max\n", argv[0]);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	int count = atoi(argv[1]) / sizeof(float), min = atoi(argv[3]), max = atoi(argv[4]), rank, size;
	double budget = atof(argv[2]);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	float *send = malloc(count * sizeof *send), *recv = malloc(count * sizeof *recv);
	double *took = malloc((size_t)max * sizeof *took);
	if (!send || !recv || !took) {
		fprintf(stderr, "no memory for %d elements\n", count);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (int i = 0; i < count; i++) {
		send[i] = 1;
		recv[i] = 0;
	}
	trial(send, recv, count, took, min);
	double once = median(took, min), n = budget / (once > 1e-9 ? once : 1e-9);
	n = n < min ? min : n > max ? max : n;
	MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	trial(send, recv, count, took, (int)n);
	for (int i = 0; i < count; i++) {
		if (recv[i] != size) {
			fprintf(stderr, "element %d of the sum is %g\n", i, recv[i]);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
	double slowest = median(took, (int)n);
	MPI_Allreduce(MPI_IN_PLACE, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("%d %.9g\n", (int)n, slowest);
	}
	free(send);
	free(recv);
	free(took);
	MPI_Finalize();
	return 0;
}
