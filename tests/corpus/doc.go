// Package corpus plays trials with carillon corpus: simulated ones, and some with real processes.
package corpus
