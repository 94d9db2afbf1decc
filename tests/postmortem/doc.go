// Package postmortem kills, hangs and confuses jobs of real processes, and reads what carillon postmortem says of them.
package postmortem
