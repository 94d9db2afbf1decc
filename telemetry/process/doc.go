// Package process identifies processes, and tells whether they live, why they don't run, and when and how they end. It
// knows the processes of this machine in this pid namespace and those below it (ID.Here).
//
// A pid identifies a process only while it lives, and only in its pid namespace. An [ID] is unique, and can be sent to
// other processes. Its methods never answer for a later process with the same pid.
package process
