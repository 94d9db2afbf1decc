// Package meet serves rendezvous for other processes, and chooses the rendezvous for each way in which ranks can find
// each other.
//
//	with a unique id         the process that made it serves it               NewUniqueID, Dial
//	with several             each serves a slice of the ranks                 NewUniqueID, Dial
//	by the job's address     rank 0 of the job serves it                      ServeWorld, Dial
//	again, after a failure   the process of the lowest rank that takes part   Again
package meet
