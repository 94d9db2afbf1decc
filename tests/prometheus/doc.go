// Package prometheus checks the dashboards folder against Carillon's real behavior: every expression of a dashboard or
// rule against the metrics of a running job, the rules with promtool and Alertmanager's own checker, and the alerts
// with a real Prometheus that scrapes a job while it hangs.
//
//	ranks ◄──/metrics── prometheus ◄──/api/v1/alerts── test
//	  └── carillon run --sd-file ──► file_sd_configs
//
// Prometheus and Alertmanager come from Debian's packages: apt-get install -y prometheus prometheus-alertmanager.
package prometheus
