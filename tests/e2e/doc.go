// Package e2e builds Carillon's programs and runs jobs with them, for the tests beside it.
//
// A test package calls Main from its TestMain. Its tests then Start jobs, Await their output, signal them, and check
// their exit codes. No test sleeps: tests wait for a line of output, or for a process to end.
package e2e
