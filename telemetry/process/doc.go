// Package process says which process is meant, whether it lives, what keeps it from running, when it ends and how. It
// knows processes of this machine alone: those of its own pid namespace, and of those below it (ID.Here).
//
// A pid names a process for as long as that lives, and in its own pid namespace. An [ID] names it for good, and can be
// sent to others. All that is asked about an ID is answered for that process and no later one with its pid.
package process
