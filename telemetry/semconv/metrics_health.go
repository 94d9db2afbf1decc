package semconv

// Metrics of the health endpoint, and of what it shows.
const (
	// MetricHealthConditions is the number of conditions that are open and not silent, by severity (gauge). Stable.
	MetricHealthConditions = "ccl_health_conditions"
	// MetricHealthRequests counts requests that were answered, by path and status code (counter). Stable.
	MetricHealthRequests = "ccl_health_requests_total"
	// MetricHealthConnections is the number of open connections (gauge). Stable.
	MetricHealthConnections = "ccl_health_connections"
	// MetricHealthConnectionsCut counts connections that were cut to let others in (counter). Stable.
	MetricHealthConnectionsCut = "ccl_health_connections_cut_total"
)

// Labels of these metrics.
const (
	LabelSeverity = "severity" // of a condition: "info", "warning" or "critical". Stable.
	LabelPath     = "path"     // "/readyz", "/readyz/{check}"; "other" for what isn't there. Stable.
	LabelStatus   = "code"     // an HTTP status: "200". Stable.
)
