// Package ras holds what Carillon does for reliability, availability and serviceability: processes keep a cheap
// membership (mesh), the notes of all ranks become one verdict (verdict), and verdicts are pushed to whoever subscribed
// (bus). Nobody polls.
package ras
