// Package postmortem kills, hangs and confuses jobs of real processes, and checks carillon postmortem's reports.
package postmortem
