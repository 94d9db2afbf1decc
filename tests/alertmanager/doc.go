// Package alertmanager holds ras/bus/alertmanager against a real Alertmanager: an alert fires, changes, is resolved,
// and survives that Alertmanager was away.
//
//	bus ──▶ sink ──POST /api/v2/alerts──▶ alertmanager ◄──GET /api/v2/alerts── test
//
// Alertmanager comes from Debian's packages: apt-get install -y prometheus-alertmanager.
package alertmanager
