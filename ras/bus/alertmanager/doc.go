// Package alertmanager keeps Alertmanagers informed of the conditions that are open, through their API
// (POST /api/v2/alerts, https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml), as Prometheus does:
//
//	opened   the alert is sent, and again each Resend, with an endsAt a few Resends ahead, so that the alert ends if
//	         this process does
//	changed  its annotations change; if its labels would, the old alert is resolved, as labels identify an alert
//	closed   it is sent as resolved until each Alertmanager has accepted that, for a quarter of an hour at most
//	once     it is an alert for five minutes
//
// Everything is sent to all Alertmanagers of a cluster, as their documentation demands. Labels are alertname, job,
// severity, reason and rank; annotations are summary, description, subject, as_of and event_id.
package alertmanager
