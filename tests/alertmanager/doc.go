// Package alertmanager tests ras/bus/alertmanager with a real Alertmanager: an alert fires, changes, is resolved, and
// survives a time when Alertmanager is away.
//
//	bus ──▶ sink ──POST /api/v2/alerts──▶ alertmanager ◄──GET /api/v2/alerts── test
//
// Alertmanager comes from Debian's packages: apt-get install -y prometheus-alertmanager.
package alertmanager
