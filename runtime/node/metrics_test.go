package node

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

func TestProxyMetrics(t *testing.T) {
	of := proxyMetrics(func() fabric.ProxyStats {
		return fabric.ProxyStats{Own: 1, Shared: 2, Waiting: 3, Steps: 4, Waits: 5, Refused: 6}
	})
	if err := testutil.CollectAndCompare(of, strings.NewReader(`
# HELP ccl_proxy_operations Operations of the proxy in use: of the process's pool, and in memory that the node's ranks share.
# TYPE ccl_proxy_operations gauge
ccl_proxy_operations{pool="own"} 1
ccl_proxy_operations{pool="shared"} 2
# HELP ccl_proxy_operations_refused_total Operations that the proxy refused because their token did not fit.
# TYPE ccl_proxy_operations_refused_total counter
ccl_proxy_operations_refused_total 6
# HELP ccl_proxy_steps_total Steps of operations that the proxy sent to other nodes.
# TYPE ccl_proxy_steps_total counter
ccl_proxy_steps_total 4
# HELP ccl_proxy_waiting Streams of this process's ranks that wait for a free operation, here or in another process.
# TYPE ccl_proxy_waiting gauge
ccl_proxy_waiting 3
# HELP ccl_proxy_waits_total Times that a rank of this process found no operation free.
# TYPE ccl_proxy_waits_total counter
ccl_proxy_waits_total 5
`)); err != nil {
		t.Error(err)
	}
}
