// Makes the same measurement as Open MPI's program in cmd/carillon/internal/bench/openmpi, with gloo over TCP: each
// rank's median latency of a float32 sum, and the largest of these. Arguments: rank, size, empty folder where the ranks
// meet, network interface, ring or bcube, bytes, seconds, least and most iterations. Rank 0 prints iterations and
// seconds.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

using Algorithm = gloo::AllreduceOptions::Algorithm;

static double median(std::vector<double> v) {
	std::sort(v.begin(), v.end());
	return v[v.size() / 2];
}

static double largest(const std::shared_ptr<gloo::Context>& context, double v) {
	gloo::AllreduceOptions options(context);
	options.setOutput(&v, 1);
	options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::max<double>));
	gloo::allreduce(options);
	return v;
}

int main(int argc, char** argv) {
	if (argc != 10) {
		fprintf(stderr, "usage: %s rank size folder interface ring|bcube bytes seconds min max\n", argv[0]);
		return 2;
	}
	int rank = atoi(argv[1]), size = atoi(argv[2]), min = atoi(argv[8]), max = atoi(argv[9]);
	gloo::transport::tcp::attr attr;
	attr.iface = argv[4];
	auto device = gloo::transport::tcp::CreateDevice(attr);
	gloo::rendezvous::FileStore store(argv[3]);
	auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
	context->connectFullMesh(store, device);

	std::vector<float> send(atol(argv[6]) / sizeof(float), 1), recv(send.size());
	gloo::AllreduceOptions options(context);
	options.setAlgorithm(std::string(argv[5]) == "ring" ? Algorithm::RING : Algorithm::BCUBE);
	options.setInput(send.data(), send.size());
	options.setOutput(recv.data(), recv.size());
	options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
	auto trial = [&](int n) {
		largest(context, 0); // a barrier
		std::vector<double> took(n);
		for (auto& t : took) {
			auto start = std::chrono::steady_clock::now();
			gloo::allreduce(options);
			t = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
		}
		return median(took);
	};
	// The first operations use memory that nobody has touched, so their time doesn't count.
	int n = min;
	double slowest = trial(n), budget = atof(argv[7]);
	for (double share : {budget / 2, budget}) {
		n = int(largest(context, std::min(std::max(share / std::max(slowest, 1e-9), double(min)), double(max))));
		slowest = trial(n);
	}
	for (size_t i = 0; i < recv.size(); i++) {
		if (recv[i] != size) {
			fprintf(stderr, "element %zu of the sum is %g\n", i, recv[i]);
			return 1;
		}
	}
	slowest = largest(context, slowest);
	if (rank == 0) {
		printf("%d %.9g\n", n, slowest);
	}
	return 0;
}
