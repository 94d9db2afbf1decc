// Package alertmanager keeps Alertmanagers informed of the conditions that are open, through their API
// (POST /api/v2/alerts, https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml), as Prometheus does:
//
//	opened   the alert is sent, and again each Resend, with an endsAt a few Resends ahead: should this process end,
//	         the alert does too
//	changed  its annotations are; if labels change, the old alert is resolved, for its labels are what Alertmanager
//	         knows it by
//	closed   it is resolved, until each Alertmanager has heard of it, for a quarter of an hour at most
//	once     it is an alert for five minutes
//
// All Alertmanagers of a cluster are told everything, as their documentation demands. Labels are alertname, job,
// severity, reason and rank; annotations are summary, description, subject, as_of and event_id.
package alertmanager
