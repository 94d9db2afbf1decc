// Package e2e builds Carillon's programs and runs jobs with them, for the tests beside it.
//
// A test package calls Main from its TestMain; its tests then Start jobs, Await what they print, signal them, and ask
// for the exit code. Nothing waits for a time to pass: a test waits for a line, or for a process to end.
package e2e
