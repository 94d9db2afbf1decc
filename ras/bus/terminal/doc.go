// Package terminal writes events as lines that people read:
//
//	06:12:03 CRITICAL verdict.opened: rank 3 has not entered all_reduce #41 of world (reason not_entered)
//	06:12:09 over     verdict.withdrawn: rank 3 has not entered all_reduce #41 of world (12 symptoms were held back)
//
// What comes from other processes can't control the terminal: control characters are shown, not obeyed.
package terminal
